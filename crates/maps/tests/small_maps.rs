//! Monitor, manager and file system maps: dumps against Ceph 16.2.15's texts.

use bytes::Bytes;
use command::{Format, Formatter};
use denc::Denc;
use maps::pool::PoolSnapInfo;
use maps::{FsMap, MgrMap, MonMap, PgPool};

fn golden(name: &str) -> Bytes {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    Bytes::from(std::fs::read(path).unwrap())
}

fn json(dump: impl FnOnce(&mut Formatter)) -> String {
    let mut f = Formatter::new(Format::Json);
    f.object("", dump);
    f.finish()
}

#[test]
fn the_monmap_prints_as_cephs() {
    let map = MonMap::from_bytes_exact(&golden("monmap.bin")).unwrap();
    assert_eq!(map.to_bytes(), golden("monmap.bin"));
    let want = String::from_utf8(golden("monmap.txt").to_vec()).unwrap();
    let want: Vec<&str> = want.lines().filter(|line| !line.starts_with("monmaptool")).collect();
    assert_eq!(map.print().lines().collect::<Vec<_>>(), want);
    let json = json(|f| map.dump(f));
    let tail = "\"public_addr\":\"127.0.0.1:13501/0\",\"priority\":0,\"weight\":0,\
        \"crush_location\":\"{}\"}]}";
    assert!(json.ends_with(tail), "{json}");
}

#[test]
fn the_mgrmap_is_version_12() {
    let bytes = golden("mgrmap.4");
    let map = MgrMap::from_bytes(&bytes).unwrap();
    assert_eq!(map.to_bytes(), bytes.slice(..map.to_bytes().len()));
    assert!(map.client_names.is_some());
    let json = json(|f| map.dump(f));
    let option = "{\"name\":\"alerts\",\"can_run\":true,\"error_string\":\"\",\"module_options\":\
        {\"interval\":{\"name\":\"interval\",\"type\":\"secs\",\"level\":\"advanced\",\"flags\":1,\
        \"default_value\":\"60\",\"min\":\"\",\"max\":\"\",\"enum_allowed\":[],\
        \"desc\":\"How frequently to reexamine health status\",\"long_desc\":\"\",\"tags\":[],\
        \"see_also\":[]}";
    assert!(json.contains(option), "{json}");
}

#[test]
fn a_fresh_fsmap_prints_as_cephs() {
    let map = FsMap { epoch: 1, ..FsMap::default() };
    let want = "{\"epoch\":1,\"default_fscid\":-1,\"compat\":{\"compat\":{},\"ro_compat\":{},\
        \"incompat\":{\"feature_1\":\"base v0.20\",\"feature_2\":\"client writeable ranges\",\
        \"feature_3\":\"default file layouts on dirs\",\
        \"feature_4\":\"dir inode in separate object\",\
        \"feature_5\":\"mds uses versioned encoding\",\"feature_6\":\"dirfrag is stored in omap\",\
        \"feature_8\":\"no anchor table\",\"feature_9\":\"file layout v2\",\
        \"feature_10\":\"snaprealm v2\"}},\"feature_flags\":{\"enable_multiple\":true,\
        \"ever_enabled_multiple\":true},\"standbys\":[],\"filesystems\":[]}";
    assert_eq!(json(|f| map.dump(f)), want);
    assert_eq!(map.to_bytes(), golden("fsmap.1"));
}

/// Under a monitor of Ceph a client may name a snapshot with bytes that are not UTF-8. No map with it decoded, and whoever
/// needed one asked for it again without end.
#[test]
fn a_pools_snapshot_has_any_name() {
    let info = PoolSnapInfo { snapid: 1, name: b"s\xff"[..].into(), ..PoolSnapInfo::default() };
    let pool = PgPool { snaps: [(1, info)].into(), ..PgPool::default() };
    assert_eq!(PgPool::from_bytes_exact(&pool.to_bytes()), Ok(pool));
}
