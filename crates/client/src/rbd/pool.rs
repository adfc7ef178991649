//! What a pool knows beside its images: namespaces, mirroring.

use std::collections::BTreeMap;

use cls::rbd::mirror_status::MirrorImage;
use types::Errno;

use super::create::LIST_MAX;
use super::names;
use crate::{ClientError, IoCtx, Operation};

/// The pool's namespaces.
const NAMESPACES: &str = "rbd_namespace";
/// Mirroring of a pool and namespace.
pub(crate) const MIRRORING: &str = "rbd_mirroring";

/// Names of a pool's namespaces; `io` must be in the default one.
pub async fn namespace_list(io: &IoCtx) -> Result<Vec<String>, ClientError> {
    let (mut all, mut after) = (Vec::<String>::new(), String::new());
    loop {
        let ask = Operation::new().rbd("namespace_list", |w| {
            w.put(&after);
            w.u64(LIST_MAX);
        });
        let page: Vec<String> = match io.operate(NAMESPACES, ask).await {
            Err(ClientError::Errno(Errno::ENOENT)) => return Ok(all),
            outcome => outcome?.decode(0)?,
        };
        let Some(last) = page.last().cloned() else { return Ok(all) };
        after = last;
        all.extend(page);
    }
}

/// How the pool (and namespace) is mirrored: 0 not, 1 chosen images, 2 all with a journal.
pub async fn mirror_mode(io: &IoCtx) -> Result<u32, ClientError> {
    match io.operate(MIRRORING, Operation::new().rbd("mirror_mode_get", |_| ())).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(cls::rbd::mirror_status::mode::DISABLED),
        outcome => outcome?.decode(0),
    }
}

/// How an image is mirrored; `None` if it is not.
pub async fn mirror_image(io: &IoCtx, id: &str) -> Result<Option<MirrorImage>, ClientError> {
    let ask = Operation::new().rbd("mirror_image_get", |w| w.put(&id.to_owned()));
    match io.operate(MIRRORING, ask).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(None),
        outcome => outcome?.decode(0).map(Some),
    }
}

/// Ids of all mirrored images.
pub async fn mirror_images(io: &IoCtx) -> Result<Vec<String>, ClientError> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let ask = Operation::new().rbd("mirror_image_list", |w| {
            w.put(&after);
            w.u64(LIST_MAX);
        });
        let page: BTreeMap<String, String> = match io.operate(MIRRORING, ask).await {
            Err(ClientError::Errno(Errno::ENOENT)) => return Ok(all),
            outcome => outcome?.decode(0)?,
        };
        let Some(last) = page.keys().next_back().cloned() else { return Ok(all) };
        after = last;
        all.extend(page.into_keys());
    }
}

/// The id of an image; ENOENT.
pub async fn image_id(io: &IoCtx, name: &str) -> Result<String, ClientError> {
    let ask = Operation::new().rbd("get_id", |_| ());
    io.operate(names::id_object(name), ask).await?.decode(0)
}

/// The name of an image; ENOENT.
pub async fn image_name(io: &IoCtx, id: &str) -> Result<String, ClientError> {
    let ask = Operation::new().rbd("dir_get_name", |w| w.put(&id.to_owned()));
    io.operate(names::DIRECTORY, ask).await?.decode(0)
}
