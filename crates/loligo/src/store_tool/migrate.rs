//! `loligo store migrate`: an OSD's store in another backend.
//!
//! ```text
//! osd/0           the OSD, with the old store
//! osd/0.migrate   the new one while it is made; then the two change names in one step, and it is
//!                 the old one: removed, or kept as osd/0.old
//! ```
//!
//! Cut off at any place, `osd/0` is one or the other, whole.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use config::Config;
use serde_json::json;
use store::ObjectStore;
use store::transfer::{compare, copy};
use types::Uuid;

use super::{Context, failed, objects, progress};
use crate::failure::Failure;
use crate::layout::sync_parent;
use crate::{daemon, stores};

fn at(path: &Path, what: &str, e: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot {what} {}: {e}", path.display()))
}

/// The folder of an OSD with an ending.
fn beside(dir: &Path, ending: &str) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Lets two folders change names.
fn exchange(one: &Path, two: &Path) -> io::Result<()> {
    let path =
        |p: &Path| CString::new(p.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput);
    let (one, two) = (path(one)?, path(two)?);
    // SAFETY: both are texts that end in a zero byte.
    let done = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            two.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes all that is in a folder durable. What it has of an OSD beside the store is not synced when it
/// is written, and a file system may make an exchange of names durable first.
fn sync_below(dir: &Path) -> io::Result<()> {
    let dir = fs::File::open(dir)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::syncfs(dir.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The OSD's files that belong to no store: its keyring, who it is.
fn copy_own_files(dir: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_store = name.to_str().is_some_and(|name| stores::FILES.contains(&name));
        if entry.file_type()?.is_file() && !is_store {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// The configuration of the new store while it is made.
fn new_config(context: &Context, place: &Path, to: &str) -> Result<Rc<Config>, Failure> {
    let mut sets = context.sets.clone();
    sets.push(format!("osd_data={}", place.display()));
    sets.push(format!("osd_objectstore={to}"));
    let id = context.config.id();
    Ok(Rc::new(daemon::load_config("osd", id, &context.conf, &sets)?))
}

pub(super) async fn migrate(context: &Context, to: &str, keep_old: bool) -> Result<(), Failure> {
    let (dir, from) = (context.dir(), stores::kind(&context.config));
    if !stores::STORES.contains(&to) {
        let known = stores::STORES.join(", ");
        return Err(Failure::new(format!("--to {to}: there is {known}")));
    }
    if to == "memstore" {
        return Err(Failure::new("--to memstore: that keeps nothing when its OSD is killed"));
    }
    let (new, old) = (beside(&dir, ".migrate"), beside(&dir, ".old"));
    if keep_old && old.exists() {
        return Err(Failure::new(format!("{} exists: remove it first", old.display())));
    }
    if new.exists() {
        // One that was cut off: nothing in it is needed.
        fs::remove_dir_all(&new).map_err(|e| at(&new, "remove", &e))?;
    }
    let config = new_config(context, &new, to)?;
    if let Some(place) = stores::places_outside(&context.config)
        .into_iter()
        .find(|place| stores::places_outside(&config).contains(place))
    {
        return Err(Failure::new(format!(
            "both stores would be on {}: name another place by --set",
            place.display()
        )));
    }
    fs::create_dir_all(&new).map_err(|e| at(&new, "make", &e))?;
    copy_own_files(&dir, &new).map_err(|e| at(&new, "copy the OSD's files to", &e))?;
    let moved = match fill(context, &config).await {
        Ok(moved) => moved,
        Err(e) => {
            let _ = fs::remove_dir_all(&new);
            return Err(Failure::new(format!("{e}; the OSD is as it was")));
        }
    };
    sync_below(&new).and_then(|()| exchange(&dir, &new)).map_err(|e| {
        at(
            &dir,
            "exchange the new folder with",
            &format!("{e}; the OSD is as it was, the new store in {}", new.display()),
        )
    })?;
    sync_parent(&dir).map_err(|e| at(&dir, "sync the folder of", &e))?;
    let kept = match keep_old {
        true => fs::rename(&new, &old).map_err(|e| at(&new, "rename", &e)).map(|()| Some(old))?,
        false => fs::remove_dir_all(&new).map_err(|e| at(&new, "remove", &e)).map(|()| None)?,
    };
    let value = json!({
        "osd": context.name(),
        "from": from,
        "to": to,
        "collections": moved.collections,
        "objects": moved.objects,
        "bytes": moved.data,
        "xattrs": moved.attrs,
        "omap_keys": moved.omap_keys,
        "verified": true,
        "old": kept.as_ref().map(|path| path.display().to_string()),
    });
    let mut text = format!(
        "{} is a {to} now (was {from}): {} objects with {} bytes, {} xattrs and {} omap keys, all read again and the same",
        context.name(),
        moved.objects,
        moved.data,
        moved.attrs,
        moved.omap_keys
    );
    if let Some(path) = kept {
        text += &format!("\nthe old store is in {}", path.display());
    }
    context.tell_change(&value, &text);
    Ok(())
}

/// Makes the new store, copies everything and compares everything.
async fn fill(context: &Context, config: &Rc<Config>) -> Result<store::transfer::Tally, Failure> {
    let env = &context.env;
    let fsid = fs::read_to_string(context.dir().join("fsid"))?;
    let fsid: Uuid = fsid.trim().parse().map_err(|_| Failure::new("the OSD's fsid is no UUID"))?;
    let source = stores::open(env, &context.config).await?;
    let filled = async {
        let count = objects::count(&source).await?;
        stores::make(env, config, fsid).await?;
        let target = stores::open(env, config).await?;
        let bar = progress("copying", count);
        let copied = copy(&*source, &*target, &mut |t| bar.set_position(t.objects)).await;
        let closed = target.close().await;
        // It holds its device's lock.
        drop(target);
        bar.finish_and_clear();
        let copied = copied.and_then(|tally| closed.map(|()| tally)).map_err(|e| failed(&e))?;
        // As the OSD will find it.
        let target = stores::open(env, config).await?;
        let result = verify(&source, &target, count, copied).await;
        target.close().await.map_err(|e| failed(&e))?;
        result
    };
    let result = filled.await;
    source.close().await.map_err(|e| failed(&e))?;
    result
}

async fn verify(
    source: &Rc<dyn ObjectStore>,
    target: &Rc<dyn ObjectStore>,
    count: u64,
    copied: store::transfer::Tally,
) -> Result<store::transfer::Tally, Failure> {
    let bar = progress("verifying", count);
    let compared = compare(&**source, &**target, &mut |t| bar.set_position(t.objects)).await;
    bar.finish_and_clear();
    let (seen, differences) = compared.map_err(|e| failed(&e))?;
    match &differences[..] {
        [] if seen.objects == copied.objects => Ok(copied),
        [] => Err(Failure::new("not all that was copied was found again")),
        some => Err(Failure::new(format!("the new store differs: {}", some.join("; ")))),
    }
}
