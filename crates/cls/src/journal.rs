//! Class `journal`: the header of an image's journal, its clients and tags, and guarded appends
//! (`src/cls/journal/` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

/// Clients of one step of a search.
const CLIENTS_PAGE: u64 = 256;
/// Tags of one step of a listing.
const TAGS_PAGE: u64 = 64;
/// Asks for a tag class of its own.
pub const TAG_CLASS_NEW: u64 = u64::MAX;
/// A client that nobody waits for.
pub const CLIENT_DISCONNECTED: u8 = 1;

const CLIENT: &[u8] = b"client_";
const TAG: &[u8] = b"tag_";

/// How far an object of the journal is processed. Wire: cls::journal::ObjectPosition v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjectPosition {
    /// The object.
    pub object_number: u64,
    /// Tag of the entry.
    pub tag_tid: u64,
    /// The entry within the tag.
    pub entry_tid: u64,
}

/// How far a client is, newest first. Wire: cls::journal::ObjectSetPosition v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjectSetPosition {
    /// One of each object being written.
    pub object_positions: Vec<ObjectPosition>,
}

/// A reader or writer of the journal. Wire: cls::journal::Client v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Client {
    /// Its id.
    pub id: BString,
    /// Its own.
    pub data: Bytes,
    /// How far it is.
    pub commit_position: ObjectSetPosition,
    /// connected 0, disconnected 1.
    pub state: u8,
}

/// An epoch of ownership. Wire: cls::journal::Tag v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Tag {
    /// Id.
    pub tid: u64,
    /// Which history it belongs to.
    pub tag_class: u64,
    /// The client's own.
    pub data: Bytes,
}

/// The class.
pub const CLASS: Class = Class {
    name: "journal",
    methods: &[
        method!("create", Flags::RD_WR, create),
        method!("get_order", Flags::RD, get_order),
        method!("get_splay_width", Flags::RD, get_splay_width),
        method!("get_pool_id", Flags::RD, get_pool_id),
        method!("get_minimum_set", Flags::RD, get_minimum_set),
        method!("set_minimum_set", Flags::RD_WR, set_minimum_set),
        method!("get_active_set", Flags::RD, get_active_set),
        method!("set_active_set", Flags::RD_WR, set_active_set),
        method!("get_client", Flags::RD, get_client),
        method!("client_register", Flags::RD_WR, client_register),
        method!("client_update_data", Flags::RD_WR, client_update_data),
        method!("client_update_state", Flags::RD_WR, client_update_state),
        method!("client_unregister", Flags::RD_WR, client_unregister),
        method!("client_commit", Flags::RD_WR, client_commit),
        method!("client_list", Flags::RD, client_list),
        method!("get_next_tag_tid", Flags::RD, get_next_tag_tid),
        method!("get_tag", Flags::RD, get_tag),
        method!("tag_create", Flags::RD_WR, tag_create),
        method!("tag_list", Flags::RD, tag_list),
        method!("guard_append", Flags::RD_WR, guard_append),
        method!("append", Flags::RD_WR, append),
    ],
    filters: &[],
};

fn client_key(id: &[u8]) -> Vec<u8> {
    [CLIENT, id].concat()
}

fn tag_key(tid: u64) -> Vec<u8> {
    format!("tag_{tid:016x}").into_bytes()
}

/// A key's value; here Ceph answers what is no `T` with `EINVAL`.
async fn read<T: Denc>(ctx: &mut dyn ObjectContext, key: &[u8]) -> Result<T, Errno> {
    argument(&ctx.omap_val(key).await?)
}

async fn write<T: Denc>(ctx: &mut dyn ObjectContext, key: &[u8], value: &T) -> Result<(), Errno> {
    ctx.omap_set(BTreeMap::from([(key.into(), value.to_bytes())])).await
}

async fn remove(ctx: &mut dyn ObjectContext, key: &[u8]) -> Result<(), Errno> {
    match ctx.omap_rm(key).await {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

/// `EEXIST` if the key is set.
async fn need_no(ctx: &mut dyn ObjectContext, key: &[u8]) -> Result<(), Errno> {
    match ctx.omap_val(key).await {
        Err(Errno::ENOENT) => Ok(()),
        Ok(_) => Err(Errno::EEXIST),
        Err(errno) => Err(errno),
    }
}

async fn create(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (order, splay_width, pool_id): (u8, u8, i64) = argument(input)?;
    need_no(ctx, b"order").await?;
    write(ctx, b"order", &order).await?;
    write(ctx, b"splay_width", &splay_width).await?;
    write(ctx, b"pool_id", &pool_id).await?;
    for number in ["active_set", "minimum_set", "next_tag_tid", "next_tag_class"] {
        write(ctx, number.as_bytes(), &0u64).await?;
    }
    Ok(())
}

async fn get_order(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read::<u8>(ctx, b"order").await?.to_bytes())
}

async fn get_splay_width(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read::<u8>(ctx, b"splay_width").await?.to_bytes())
}

async fn get_pool_id(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read::<i64>(ctx, b"pool_id").await?.to_bytes())
}

async fn get_minimum_set(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read::<u64>(ctx, b"minimum_set").await?.to_bytes())
}

async fn get_active_set(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read::<u64>(ctx, b"active_set").await?.to_bytes())
}

/// Sets a number that only grows.
async fn advance(ctx: &mut dyn ObjectContext, key: &[u8], to: u64) -> Result<(), Errno> {
    let old: u64 = read(ctx, key).await?;
    match to.cmp(&old) {
        core::cmp::Ordering::Less => Err(Errno::ESTALE),
        core::cmp::Ordering::Equal => Ok(()),
        core::cmp::Ordering::Greater => write(ctx, key, &to).await,
    }
}

async fn set_minimum_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let set: u64 = argument(input)?;
    if read::<u64>(ctx, b"active_set").await? < set {
        return Err(Errno::EINVAL);
    }
    advance(ctx, b"minimum_set", set).await
}

async fn set_active_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let set: u64 = argument(input)?;
    if read::<u64>(ctx, b"minimum_set").await? > set {
        return Err(Errno::EINVAL);
    }
    advance(ctx, b"active_set", set).await
}

async fn get_client(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let id: BString = argument(input)?;
    Ok(read::<Client>(ctx, &client_key(&id)).await?.to_bytes())
}

/// Up to `max` clients after one, by id.
async fn clients(
    ctx: &mut dyn ObjectContext,
    after: &[u8],
    max: u64,
) -> Result<Vec<Client>, Errno> {
    let after = if after.is_empty() { Vec::new() } else { client_key(after) };
    let (page, _) = ctx.omap_vals(&after, CLIENT, max).await?;
    page.values().map(stored).collect()
}

/// All values behind a prefix, in the order of their keys: values may say other ids than these.
async fn all<T: Denc>(
    ctx: &mut dyn ObjectContext,
    prefix: &[u8],
    page_max: u64,
) -> Result<Vec<T>, Errno> {
    let mut all = Vec::new();
    // Not the prefix: that is the key of the client without an id.
    let mut last = BString::default();
    loop {
        let (page, more) = ctx.omap_vals(&last, prefix, page_max).await?;
        let Some(end) = page.keys().next_back() else { return Ok(all) };
        last = end.clone();
        for value in page.values() {
            all.push(stored(value)?);
        }
        if !more {
            return Ok(all);
        }
    }
}

async fn all_clients(ctx: &mut dyn ObjectContext) -> Result<Vec<Client>, Errno> {
    all(ctx, CLIENT, CLIENTS_PAGE).await
}

async fn client_register(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, data): (BString, Bytes) = argument(input)?;
    read::<u8>(ctx, b"order").await?;
    need_no(ctx, &client_key(&id)).await?;
    // A new client starts where the slowest is; at the start, if one has not begun.
    let mut commit_position = ObjectSetPosition::default();
    let mut least = None;
    for client in all_clients(ctx).await? {
        let Some(first) = client.commit_position.object_positions.first() else {
            commit_position = ObjectSetPosition::default();
            break;
        };
        let position = (first.tag_tid, first.entry_tid);
        if least.is_none_or(|least| position < least) {
            least = Some(position);
            commit_position = client.commit_position;
        }
    }
    let client = Client { id, data, commit_position, state: 0 };
    write(ctx, &client_key(&client.id), &client).await
}

async fn client_update_data(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, data): (BString, Bytes) = argument(input)?;
    let client: Client = read(ctx, &client_key(&id)).await?;
    write(ctx, &client_key(&id), &Client { data, ..client }).await
}

async fn client_update_state(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, state): (BString, u8) = argument(input)?;
    let client: Client = read(ctx, &client_key(&id)).await?;
    write(ctx, &client_key(&id), &Client { state, ..client }).await
}

async fn client_unregister(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let id: BString = argument(input)?;
    ctx.omap_val(&client_key(&id)).await?;
    ctx.omap_rm(&client_key(&id)).await?;
    expire_tags(ctx, Some(&id)).await
}

async fn client_commit(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, commit_position): (BString, ObjectSetPosition) = argument(input)?;
    let splay_width: u8 = read(ctx, b"splay_width").await?;
    if commit_position.object_positions.len() > usize::from(splay_width) {
        return Err(Errno::EINVAL);
    }
    let client: Client = read(ctx, &client_key(&id)).await?;
    if client.commit_position == commit_position {
        return Ok(());
    }
    let client = Client { commit_position, ..client };
    write(ctx, &client_key(&id), &client).await
}

async fn client_list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    Ok(clients(ctx, &after, max).await?.to_bytes())
}

async fn get_next_tag_tid(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read::<u64>(ctx, b"next_tag_tid").await?.to_bytes())
}

async fn get_tag(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let tid: u64 = argument(input)?;
    Ok(read::<Tag>(ctx, &tag_key(tid)).await?.to_bytes())
}

/// All tags, oldest first.
async fn tags(ctx: &mut dyn ObjectContext) -> Result<Vec<Tag>, Errno> {
    all(ctx, TAG, TAGS_PAGE).await
}

/// Of each tag class the newest tag up to `tid`: what is older in the class is not needed.
fn newest_of_classes(tags: &[Tag], tid: u64) -> BTreeMap<u64, u64> {
    let mut newest = BTreeMap::new();
    for tag in tags {
        newest.insert(tag.tag_class, tag.tid);
        if tag.tid >= tid {
            break;
        }
    }
    newest
}

/// Removes the tags that no client needs any more; one that has not begun needs all.
async fn expire_tags(ctx: &mut dyn ObjectContext, skipped: Option<&BString>) -> Result<(), Errno> {
    let mut minimum = None;
    for client in all_clients(ctx).await? {
        if Some(&client.id) == skipped || client.state == CLIENT_DISCONNECTED {
            continue;
        }
        let positions = &client.commit_position.object_positions;
        let Some(least) = positions.iter().map(|p| p.tag_tid).min() else { return Ok(()) };
        minimum = Some(minimum.map_or(least, |minimum: u64| minimum.min(least)));
    }
    let Some(minimum) = minimum else { return Ok(()) };
    let tags = tags(ctx).await?;
    let newest = newest_of_classes(&tags, minimum);
    for tag in &tags {
        if newest.get(&tag.tag_class).is_some_and(|&newest| tag.tid < newest) {
            remove(ctx, &tag_key(tag.tid)).await?;
        }
        if tag.tid >= minimum {
            break;
        }
    }
    Ok(())
}

async fn tag_create(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (tid, class, data): (u64, u64, Bytes) = argument(input)?;
    need_no(ctx, &tag_key(tid)).await?;
    let next: u64 = read(ctx, b"next_tag_tid").await?;
    if tid != next {
        return Err(Errno::ESTALE);
    }
    let next_class: u64 = read(ctx, b"next_tag_class").await?;
    let tag_class = if class == TAG_CLASS_NEW {
        write(ctx, b"next_tag_class", &next_class.wrapping_add(1)).await?;
        next_class
    } else if class < next_class {
        class
    } else {
        return Err(Errno::EINVAL);
    };
    expire_tags(ctx, None).await?;
    write(ctx, b"next_tag_tid", &tid.wrapping_add(1)).await?;
    let tag = Tag { tid, tag_class, data };
    write(ctx, &tag_key(tid), &tag).await
}

async fn tag_list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    type Arguments = ((u64, u64), (BString, Option<u64>));
    let ((after, max), (client, class)): Arguments = argument(input)?;
    let client: Client = read(ctx, &client_key(&client)).await?;
    let positions = &client.commit_position.object_positions;
    let minimum = positions.iter().map(|p| p.tag_tid).min();
    let tags = tags(ctx).await?;
    let newest = minimum.map(|tid| newest_of_classes(&tags, tid)).unwrap_or_default();
    let mut found: Vec<Tag> = Vec::new();
    let mut seen = BTreeSet::new();
    for tag in tags {
        if after != 0 && tag.tid <= after {
            continue;
        }
        let is_needed = newest.get(&tag.tag_class).is_none_or(|&newest| tag.tid >= newest);
        let is_wanted = class.is_none_or(|class| class == tag.tag_class);
        if is_needed && is_wanted && seen.insert(tag.tid) {
            found.push(tag);
        }
        if found.len() as u64 >= max {
            break;
        }
    }
    Ok(found.to_bytes())
}

/// Bytes of the journal's object; `EOVERFLOW` when it is full.
async fn size_below(ctx: &mut dyn ObjectContext, soft_max: u64) -> Result<u64, Errno> {
    match ctx.stat().await {
        Err(Errno::ENOENT) => Ok(0),
        Err(errno) => Err(errno),
        Ok(stat) if stat.size >= soft_max => Err(Errno::EOVERFLOW),
        Ok(stat) => Ok(stat.size),
    }
}

async fn guard_append(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let soft_max: u64 = argument(input)?;
    size_below(ctx, soft_max).await.map(|_| ())
}

/// Appends. Ceph can pad to its store's block, which changes nothing for readers, when all
/// clients must be of release 15; the stores here write no less for it.
async fn append(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (soft_max, data): (u64, Bytes) = argument(input)?;
    let size = size_below(ctx, soft_max).await?;
    ctx.write(size, data).await
}
