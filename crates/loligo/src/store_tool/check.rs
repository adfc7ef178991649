//! `loligo store fsck`.

use std::rc::Rc;

use serde_json::json;
use store::{FsckOptions, ObjectStore};

use super::{Context, failed, objects, progress};
use crate::failure::Failure;

pub(super) async fn fsck(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    deep: bool,
    repair: bool,
) -> Result<(), Failure> {
    let options = FsckOptions { deep, repair };
    let mut report = store.fsck(options).await.map_err(|e| failed(&e))?;
    let bar = progress("checking", objects::count(store).await?);
    let mut told = |objects| bar.set_position(objects);
    let checked = osd::offline::fsck(store, options, &mut told).await;
    let (tally, of_objects) = checked.map_err(|e| failed(&e))?;
    bar.finish_and_clear();
    report.repaired += of_objects.repaired;
    of_objects.errors.into_iter().for_each(|line| report.error(line));
    let left = (report.errors.len() as u64).saturating_sub(report.repaired);
    let value = json!({
        "osd": context.name(),
        "deep": deep,
        "pgs": tally.pgs,
        "objects": tally.objects,
        "bytes_read": tally.bytes_read,
        "errors": report.errors,
        "repaired": report.repaired,
    });
    let mut text = report.errors.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text += &format!(
        "{} objects in {} placement groups checked, {} bytes of data read: {} errors, {} repaired",
        tally.objects,
        tally.pgs,
        tally.bytes_read,
        report.errors.len(),
        report.repaired
    );
    context.tell_change(&value, &text);
    match left {
        0 => Ok(()),
        _ if repair => Err(Failure::new(format!(
            "{left} errors are beyond repair here; where other OSDs have the objects, start this \
             one and run 'ceph pg repair PG'"
        ))),
        _ => Err(Failure::new(format!("{left} errors; --repair puts right what can be"))),
    }
}
