//! `loligo store export` and `import`.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use osd::offline::{Moved, TransferError};
use serde_json::{Value, json};
use store::{CollId, ObjectStore};

use super::select::pg_collection;
use super::{Context, objects, progress};
use crate::failure::Failure;

/// Bytes of the file in memory.
const BUFFER_LEN: usize = 1 << 20;

fn described(context: &Context, moved: &Moved, file: &Path) -> Value {
    json!({
        "osd": context.name(),
        "pgid": moved.pgid.to_string(),
        "file": file.display().to_string(),
        "objects": moved.objects,
        "skipped": moved.skipped,
        "bytes": moved.data,
        "log_entries": moved.log_entries,
        "epoch": moved.epoch,
    })
}

fn of_file(file: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {e}", file.display()))
}

pub(super) async fn export(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    pg: &str,
    file: &Path,
) -> Result<(), Failure> {
    let cid = pg_collection(pg)?;
    let CollId::Pg(pgid) = cid else {
        return Err(Failure::new(format!("{pg}: no group")));
    };
    let refused = |e: TransferError| Failure::new(format!("cannot export {pg}: {e}"));
    let mut count = 0;
    if store.collection_bits(&cid).await.is_ok() {
        objects::for_each(store, &cid, |_| count += 1).await?;
    }
    // A device or a pipe is written to; a link stays one.
    let place = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let is_file = std::fs::metadata(&place).map_or(true, |found| found.is_file());
    // Whoever finds a file of that name finds a whole one.
    let mut part = place.as_os_str().to_owned();
    part.push(if is_file { ".part" } else { "" });
    let part = PathBuf::from(part);
    let out = OpenOptions::new().write(true).create(is_file).truncate(is_file).open(&part);
    let out = out.map_err(|e| of_file(&part, &e))?;
    let out = BufWriter::with_capacity(BUFFER_LEN, out);
    let bar = progress("exporting", count);
    let exported = osd::offline::export(store, pgid, out, &mut |n| bar.set_position(n)).await;
    let (moved, out) = match exported {
        Ok(exported) => exported,
        Err(e) => {
            if is_file {
                let _ = std::fs::remove_file(&part);
            }
            return Err(refused(e));
        }
    };
    bar.finish_and_clear();
    let out = out.into_inner().map_err(|e| of_file(&part, e.error()))?;
    if is_file {
        out.sync_all().map_err(|e| of_file(&part, &e))?;
        std::fs::rename(&part, &place).map_err(|e| of_file(&place, &e))?;
    }
    let text = format!(
        "{pgid}: {} objects, {} bytes, {} log entries at map {} in {}",
        moved.objects,
        moved.data,
        moved.log_entries,
        moved.epoch,
        file.display()
    );
    context.tell(&described(context, &moved, file), &text);
    Ok(())
}

pub(super) async fn import(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    file: &Path,
) -> Result<(), Failure> {
    let input = File::open(file).map_err(|e| of_file(file, &e))?;
    let input = BufReader::with_capacity(BUFFER_LEN, input);
    let bar = progress("importing", 0);
    let mut told = |objects| {
        bar.set_length(objects);
        bar.set_position(objects);
    };
    let moved = osd::offline::import(store, input, &mut told)
        .await
        .map_err(|e| Failure::new(format!("cannot import {}: {e}", file.display())))?;
    bar.finish_and_clear();
    let skipped = match moved.skipped {
        0 => String::new(),
        n => format!(
            "; {n} objects were left out, as PGs that split off since are here. Those of other PGs among them are in the file \
             alone: keep it, and import it into an OSD that has none of this PG's"
        ),
    };
    let text = format!(
        "{}: {} objects, {} bytes, {} log entries at map {} are in {} now{skipped}",
        moved.pgid,
        moved.objects,
        moved.data,
        moved.log_entries,
        moved.epoch,
        context.name()
    );
    context.tell_change(&described(context, &moved, file), &text);
    Ok(())
}
