//! Making, listing and removing images (`src/librbd/image/CreateRequest.cc`,
//! `RemoveRequest.cc` at v16.2).

use std::collections::BTreeMap;

use cls::rbd::mirror_status::mode;
use futures_util::future::LocalBoxFuture;
use types::Errno;

use super::journal;
use super::names::{self, features};
use super::object_map;
use super::pool::mirror_mode;
use super::remove::forget;
use super::striping::Layout;
use crate::{ClientError, IoCtx, Operation};

/// Names of one page of a listing.
pub(crate) const LIST_MAX: u64 = 1024;

/// What a new image is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// Objects have 2^order bytes, 12 to 25.
    pub order: u8,
    /// [`features`]; striping and data pool follow from the rest.
    pub features: u64,
    /// Bytes of a stripe in one object; 0 for whole objects.
    pub stripe_unit: u64,
    /// Objects of a stripe; 0 for one.
    pub stripe_count: u64,
    /// The pool of the data objects, if another.
    pub data_pool: Option<String>,
    /// Objects of the journal have 2^this bytes, 12 to 26; 0 for `rbd_journal_order`.
    pub journal_order: u8,
    /// Objects of the journal that are written side by side; 0 for `rbd_journal_splay_width`.
    pub journal_splay_width: u8,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions {
            order: 22,
            features: features::DEFAULT,
            stripe_unit: 0,
            stripe_count: 0,
            data_pool: None,
            journal_order: 0,
            journal_splay_width: 0,
        }
    }
}

impl CreateOptions {
    fn layout(&self) -> Result<Layout, Errno> {
        if !(12..=25).contains(&self.order) {
            return Err(Errno::EDOM);
        }
        let size = 1 << self.order;
        let unit = if self.stripe_unit == 0 { size } else { self.stripe_unit };
        let count = self.stripe_count.max(1);
        if (self.stripe_unit == 0) != (self.stripe_count == 0)
            || unit > size
            || !size.is_multiple_of(unit)
        {
            return Err(Errno::EINVAL);
        }
        Ok(Layout { order: self.order, unit, count })
    }

    fn effective_features(&self, layout: &Layout) -> Result<u64, Errno> {
        let mut bits = self.features & !(features::STRIPINGV2 | features::DATA_POOL);
        if bits & !features::SUPPORTED != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let needs = [
            (features::OBJECT_MAP, features::EXCLUSIVE_LOCK),
            (features::FAST_DIFF, features::OBJECT_MAP),
            (features::JOURNALING, features::EXCLUSIVE_LOCK),
        ];
        if needs.iter().any(|(has, needs)| bits & has != 0 && bits & needs == 0) {
            return Err(Errno::EINVAL);
        }
        if layout.count != 1 || layout.unit != layout.object_size() {
            bits |= features::STRIPINGV2;
        }
        if self.data_pool.is_some() {
            bits |= features::DATA_POOL;
        }
        Ok(bits)
    }
}

/// What is to be written for a new image.
pub(crate) struct NewImage {
    pub(crate) id: String,
    size: u64,
    layout: Layout,
    features: u64,
    data_pool: i64,
    journal_order: u8,
    journal_splay_width: u8,
}

/// Makes an image of `size` bytes; EEXIST.
pub fn create<'a>(
    io: &'a IoCtx,
    name: &'a str,
    size: u64,
    options: &'a CreateOptions,
) -> LocalBoxFuture<'a, Result<(), ClientError>> {
    Box::pin(async move {
        if name.is_empty() || name.contains(['/', '@']) {
            return Err(Errno::EINVAL.into());
        }
        let new = plan(io, size, options).await?;
        claim_name(io, name, &new.id).await?;
        if let Err(error) = write_header(io, &new).await {
            let _ = forget(io, name, &new.id).await;
            return Err(error);
        }
        Ok(())
    })
}

pub(crate) async fn plan(
    io: &IoCtx,
    size: u64,
    options: &CreateOptions,
) -> Result<NewImage, ClientError> {
    let layout = options.layout()?;
    let features = options.effective_features(&layout)?;
    let data_pool = match &options.data_pool {
        Some(pool) => io.client().pool_lookup(pool).await?,
        None => -1,
    };
    if features & features::OBJECT_MAP != 0 && layout.objects(size) > object_map::OBJECTS_MAX {
        return Err(Errno::EFBIG.into());
    }
    // librbd's form: the client's number and some random digits, never above 40 characters.
    let client = io.client();
    let id = format!("{:x}{:016x}", client.global_id(), client.env().random_u64());
    if features & features::JOURNALING != 0 && mirror_mode(io).await? == mode::POOL {
        // Such an image would be mirrored from its first moment on.
        return Err(Errno::EOPNOTSUPP.into());
    }
    let or_option = |own: u8, option: &str| match own {
        0 => u8::try_from(client.config().uint(option)).unwrap_or(0),
        own => own,
    };
    let journal_order = or_option(options.journal_order, "rbd_journal_order");
    let journal_splay_width = or_option(options.journal_splay_width, "rbd_journal_splay_width");
    Ok(NewImage { id, size, layout, features, data_pool, journal_order, journal_splay_width })
}

pub(crate) async fn claim_name(io: &IoCtx, name: &str, id: &str) -> Result<(), ClientError> {
    let claim = Operation::new().create(true).rbd_write("set_id", |w| w.put(&id.to_owned()));
    io.operate(names::id_object(name), claim).await?;
    let add = Operation::new().rbd_write("dir_add_image", |w| {
        w.put(&name.to_owned());
        w.put(&id.to_owned());
    });
    if let Err(error) = io.operate(names::DIRECTORY, add).await {
        let _ = io.remove(names::id_object(name)).await;
        return Err(error);
    }
    Ok(())
}

pub(crate) async fn write_header(io: &IoCtx, new: &NewImage) -> Result<(), ClientError> {
    if new.features & features::OBJECT_MAP != 0 {
        let objects = new.layout.objects(new.size);
        let map = Operation::new().write_full(object_map::empty(objects));
        io.operate(names::object_map(&new.id, types::snap::NOSNAP), map).await?;
    }
    if new.features & features::JOURNALING != 0 {
        journal::create(io, &new.id, new.journal_order, new.journal_splay_width).await?;
    }
    let prefix = match new.data_pool {
        -1 => format!("rbd_data.{}", new.id),
        _ => format!("rbd_data.{}.{}", io.pool_id(), new.id),
    };
    let header = names::header(&new.id);
    let op = Operation::new().create(true).rbd_write("create", |w| {
        w.u64(new.size);
        w.u8(new.layout.order);
        w.u64(new.features);
        w.put(&prefix);
        w.i64(new.data_pool);
    });
    io.operate(header.as_str(), op).await?;
    if new.features & features::STRIPINGV2 != 0 {
        // By itself: methods do not see keys that the same operation has written.
        let striping = Operation::new().rbd_write("set_stripe_unit_count", |w| {
            w.u64(new.layout.unit);
            w.u64(new.layout.count);
        });
        io.operate(header, striping).await?;
    }
    Ok(())
}

/// Names and ids of a pool's (and namespace's) images.
pub async fn list(io: &IoCtx) -> Result<BTreeMap<String, String>, ClientError> {
    let (mut all, mut after) = (BTreeMap::new(), String::new());
    loop {
        let ask = Operation::new().rbd("dir_list", |w| {
            w.put(&after);
            w.u64(LIST_MAX);
        });
        let page: BTreeMap<String, String> = match io.operate(names::DIRECTORY, ask).await {
            Err(ClientError::Errno(Errno::ENOENT)) => return Ok(all),
            outcome => outcome?.decode(0)?,
        };
        let Some(last) = page.keys().next_back().cloned() else { return Ok(all) };
        after = last;
        let whole = page.len() as u64 == LIST_MAX;
        all.extend(page);
        if !whole {
            return Ok(all);
        }
    }
}
