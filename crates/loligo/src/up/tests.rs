use std::path::PathBuf;

use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("loligo-up-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir.canonicalize().unwrap()
}

fn args(dir: &Path, more: &str) -> UpArgs {
    let dir = dir.display();
    let line = format!("loligo up --dir {dir} {more}");
    match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
        Command::Up(args) => args,
        other => panic!("{other:?}"),
    }
}

/// A new cluster's folder, as `up` leaves it before the first daemon starts.
fn made(name: &str, more: &str) -> Layout {
    let layout = Layout::create(&folder(name)).unwrap();
    layout.make_folders().unwrap();
    make_cluster(&layout, &plan(&args(layout.dir(), more), None).unwrap(), 1).unwrap();
    layout
}

fn owner(layout: &Layout) -> Result<(), String> {
    let conf = layout.read_conf().unwrap();
    check_owner(layout, conf.as_ref()).map_err(|e| e.to_string())
}

/// `up --dir /etc/ceph` made an OSD of the cluster whose `ceph.conf` was there; in a folder with keys
/// it wrote its own over them.
#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let layout = made("owner", "");
    assert_eq!(owner(&layout), Ok(()));
    let text = fs::read_to_string(layout.conf()).unwrap();
    fs::write(layout.conf(), "[global]\nmon_host = 127.0.0.1:3300\n").unwrap();
    assert!(owner(&layout).unwrap_err().contains("not written by 'loligo up'"));
    fs::write(layout.conf(), "").unwrap();
    assert!(owner(&layout).unwrap_err().contains("damaged"));
    // A copy of one of ours is another cluster's, too.
    fs::write(layout.conf(), text.replace(layout.dir().to_str().unwrap(), "/elsewhere")).unwrap();
    assert!(owner(&layout).unwrap_err().contains("moved or copied"));
    fs::remove_file(layout.conf()).unwrap();
    assert!(owner(&layout).unwrap_err().contains("ceph.client.admin.keyring is there"));
    fs::remove_file(layout.admin_keyring()).unwrap();
    assert!(owner(&layout).unwrap_err().contains("mon/a is there"));
    let key = fs::read_to_string(layout.data("mon", "a").join("keyring")).unwrap();
    assert!(up(&args(layout.dir(), "")).is_err());
    assert_eq!(fs::read_to_string(layout.data("mon", "a").join("keyring")).unwrap(), key);
    fs::remove_dir_all(layout.dir()).unwrap();
}

/// Of a first `up` that was killed early a monitor's database stayed, and each later one said "the database
/// already has a monitor in it".
#[test]
fn a_cluster_that_was_being_made_is_made_anew() {
    let layout = made("anew", "--osds 2");
    assert_eq!(layout.unmade_osds().len(), 2);
    fs::rename(layout.conf(), layout.unfinished_conf()).unwrap();
    assert_eq!(owner(&layout), Ok(()));
    make_cluster(&layout, &plan(&args(layout.dir(), "--osds 1"), None).unwrap(), 1).unwrap();
    assert!(layout.wrote_conf() && !layout.unfinished_conf().exists());
    assert_eq!(layout.unmade_osds(), [0]);
    // Where there is an OSD the cluster has run.
    fs::rename(layout.conf(), layout.unfinished_conf()).unwrap();
    fs::create_dir(layout.data("osd", "0")).unwrap();
    assert!(owner(&layout).unwrap_err().contains("give another --dir"));
    fs::remove_dir_all(layout.dir()).unwrap();
}

/// An `up` that found its port taken left empty folders behind.
#[test]
fn an_early_failure_leaves_nothing() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let dir = folder("early").join("new");
    let port = taken.local_addr().unwrap().port();
    let failure = up(&args(&dir, &format!("--port {port}"))).unwrap_err().to_string();
    assert!(failure.contains("is in use"), "{failure}");
    assert!(!dir.exists());
    // Sockets whose paths are too long: only after 30 s it was told that "not all daemons served".
    let long = dir.join("x".repeat(100));
    let failure = up(&args(&long, "")).unwrap_err().to_string();
    assert!(failure.contains("give a shorter --dir"), "{failure}");
    assert!(!long.exists());
    fs::remove_dir_all(dir.parent().unwrap()).unwrap();
}

/// Two at a time in one folder made daemons that nobody knew of, or keys that did not fit.
#[test]
fn one_at_a_time() {
    let layout = made("lock", "");
    let lock = layout.lock().unwrap();
    let failure = up(&args(layout.dir(), "")).unwrap_err().to_string();
    assert!(failure.contains("another 'loligo up'"), "{failure}");
    let dir = args(layout.dir(), "").dir;
    assert!(crate::down::down(&dir).unwrap_err().to_string().contains("another 'loligo up'"));
    // Ctrl-C at `up --foreground` stopped the cluster while another was at work in it.
    let (turn, waiting) = (layout.clone(), std::sync::mpsc::channel());
    let waits = std::thread::spawn(move || {
        let lock = turn.lock_in_turn().unwrap();
        waiting.0.send(()).unwrap();
        drop(lock);
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(waiting.1.try_recv().is_err());
    drop(lock);
    waits.join().unwrap();
    waiting.1.try_recv().unwrap();
    crate::down::down(&dir).unwrap();
    fs::remove_dir_all(layout.dir()).unwrap();
}

/// A restart without --osds added OSDs to a cluster of one, and one with --store or --size took no notice of them.
#[test]
fn a_restart_changes_nothing_by_itself() {
    let layout = made("restart", "--osds 1 --store kstore --osd-size 1G --size 1");
    fs::rename(layout.unmade_osd(0), layout.data("osd", "0")).unwrap();
    fs::write(layout.data("osd", "0").join("type"), "kstore\n").unwrap();
    let conf = layout.read_conf().unwrap().unwrap();
    let planned = |more: &str| {
        let args = args(layout.dir(), more);
        let plan = plan(&args, Some(&conf)).unwrap();
        let result =
            check_counts(&layout, &args).and_then(|()| check_ignored(&layout, &args, &conf, &plan));
        result.map(|()| plan).map_err(|e| e.to_string())
    };
    let plain = planned("").unwrap();
    assert_eq!((plain.osds, plain.store.as_str(), plain.osd_size), (0, "kstore", 1 << 30));
    planned("--osds 1 --store kstore --osd-size 1024M --size 1 --mons 1").unwrap();
    for (more, said) in [
        ("--store bluestore", "'loligo store migrate'"),
        ("--osd-size 2G", "OSDs that --osds adds"),
        ("--size 2", "osd_pool_default_size=N"),
        ("--osds 2 --size 2", "osd_pool_default_size=N"),
        ("--mons 3", "has 1 monitor(s): leave --mons out ('ceph mon add'"),
    ] {
        let failure = planned(more).unwrap_err();
        assert!(failure.contains(said), "{more}: {failure}");
    }
    let failure = planned("--mgrs 2").unwrap_err();
    assert!(failure.contains("manager(s)") && !failure.contains("mon"), "{failure}");
    // New ones get what is said.
    let more = planned("--osds 2 --store memstore --osd-size 2G").unwrap();
    assert_eq!((more.store.as_str(), more.osd_size), ("memstore", 2 << 30));
    fs::remove_dir_all(layout.dir()).unwrap();
}

/// `--set` of a key that the file had already, or that its `[osd]` had, changed nothing; more than 125 OSDs found no
/// ports; and what `up` finds its daemons by could be set to something else.
#[test]
fn what_is_set_has_an_effect() {
    let layout = made("set", "--set osd_pool_default_size=2 --set osd_max_backfills=1");
    let value = |name| {
        let conf = layout.read_conf().unwrap().unwrap();
        daemon::config_of("osd", "7", &layout.conf(), &conf).unwrap().str(name)
    };
    let again = |more: &str| add_settings(&layout, &plan(&args(layout.dir(), more), None).unwrap());
    assert_eq!(
        (value("osd_pool_default_size").as_str(), value("osd_max_backfills").as_str()),
        ("2", "1")
    );
    again("--set osd_max_backfills=3 --set osd-pool-default-size=1").unwrap();
    assert_eq!(
        (value("osd_pool_default_size").as_str(), value("osd_max_backfills").as_str()),
        ("1", "3")
    );
    let text = fs::read_to_string(layout.conf()).unwrap();
    fs::write(layout.conf(), text.replace("[osd]\n", "[osd]\nosd max backfills = 5\n")).unwrap();
    again("--set osd_max_backfills=4").unwrap();
    assert_eq!(value("osd_max_backfills"), "4");

    let default = value("ms_bind_port_max");
    again("--osds 40").unwrap();
    assert_eq!(value("ms_bind_port_max"), default);
    again("--osds 200").unwrap();
    assert_eq!(value("ms_bind_port_max"), "8000", "6800, and six for each");
    again("--osds 256 --set ms_bind_port_max=9000").unwrap();
    assert_eq!(value("ms_bind_port_max"), "9000");

    for key in OWN_SETTINGS {
        assert!(config::option(key).is_some(), "{key}");
    }
    let refused = plan(&args(layout.dir(), "--set osd_data=/tmp/$id"), None).unwrap_err();
    assert!(refused.to_string().contains("'up' itself sets osd_data"), "{refused}");
    let lines = parse_set("mon_pg_warn_min_per_osd=1\n[osd]").unwrap_err();
    assert!(lines.to_string().contains("one line"), "{lines}");
    fs::remove_dir_all(layout.dir()).unwrap();
}

/// A folder with a `#` in its name cut each path in `ceph.conf` short; a blank there ended the keyring's.
#[test]
fn a_folder_that_ceph_conf_cannot_carry_is_refused() {
    let dir = folder("names");
    for name in ["a b", "a#b", "a;b", "a,b", "$pid", "a=b", "a\"b", "a\\b", "a\nb", "é"] {
        let layout = Layout::create(&dir.join(name)).unwrap();
        let failure = layout.check_path().unwrap_err().to_string();
        assert!(failure.contains("give another --dir"), "{failure}");
    }
    for (name, word) in [("a.b_c-d@", "a.b_c-d@"), ("a(b)&c", "'a(b)&c'")] {
        assert!(Layout::create(&dir.join(name)).unwrap().check_path().is_ok());
        assert_eq!(for_shell(name), word);
    }
    fs::remove_dir_all(&dir).unwrap();
}
