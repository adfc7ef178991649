//! A journal's header object and its data objects (`src/journal/JournalMetadata.cc`,
//! `Journaler.cc`, `JournalTrimmer.cc` at v16.2).
//!
//! ```text
//! journal.ID                    order, splay width, pool; minimum and active set; clients; tags
//! journal_data.POOL.ID.N        entries; objects N of set s: s * splay width .. (s + 1) * splay width
//! ```

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use cls::journal::{CLIENT_DISCONNECTED, Client, ObjectSetPosition, TAG_CLASS_NEW, Tag};
use denc::{Denc, Writer};
use futures_util::future::join_all;
use types::Errno;
use types::osd::ops::message_flags;

use super::entry::{ClientData, TagData};
use crate::{ClientError, IoCtx, Operation};

/// The image itself among the clients of its journal.
const IMAGE: &str = "";
/// Clients and tags of one page.
const PAGE: u64 = 64;
/// How long watchers of the header get to take note.
const NOTICE: Duration = Duration::from_secs(5);

fn header(id: &str) -> String {
    format!("journal.{id}")
}

impl Operation {
    fn journal(self, method: &str, arguments: impl FnOnce(&mut Writer)) -> Operation {
        let mut w = Writer::new();
        arguments(&mut w);
        self.exec("journal", method, w.as_slice())
    }

    fn journal_write(self, method: &str, arguments: impl FnOnce(&mut Writer)) -> Operation {
        self.journal(method, arguments).as_write()
    }
}

/// Whether an image's newest entries are this cluster's; so it is when there is no journal (any more).
pub(crate) async fn is_owned_here(io: &IoCtx, id: &str) -> Result<bool, ClientError> {
    let owned = match Header::open(io, id).await {
        Err(ClientError::Errno(Errno::ENOENT)) => return Ok(true),
        header => header?.check_owner().await,
    };
    match owned {
        Err(ClientError::Errno(Errno::EROFS)) => Ok(false),
        other => other.map(|()| true),
    }
}

/// An open journal's header.
pub(crate) struct Header {
    io: IoCtx,
    data: IoCtx,
    oid: String,
    prefix: String,
    /// Bytes of a full object.
    pub(crate) object_size: u64,
    /// Objects of a set.
    pub(crate) splay: u64,
    /// The set that is written.
    pub(crate) active: Cell<u64>,
    /// The oldest that is kept.
    pub(crate) minimum: Cell<u64>,
    /// Class of the image's tags.
    tag_class: u64,
}

impl Header {
    /// Reads it; ENOENT when the image has no journal.
    pub(crate) async fn open(io: &IoCtx, id: &str) -> Result<Header, ClientError> {
        let ask = Operation::new()
            .journal("get_order", |_| ())
            .journal("get_splay_width", |_| ())
            .journal("get_pool_id", |_| ())
            .journal("get_active_set", |_| ())
            .journal("get_minimum_set", |_| ())
            .journal("get_client", |w| w.put(&BString::from(IMAGE)));
        let told = io.operate(header(id), ask).await?;
        let (order, splay): (u8, u8) = (told.decode(0)?, told.decode(1)?);
        let pool: i64 = told.decode(2)?;
        if !(12..=26).contains(&order) || splay == 0 {
            return Err(Errno::EINVAL.into());
        }
        let client: Client = told.decode(5)?;
        let ClientData::Image { tag_class, .. } = ClientData::from_bytes(&client.data)? else {
            return Err(Errno::EINVAL.into());
        };
        Ok(Header {
            data: data_io(io, pool),
            oid: header(id),
            prefix: prefix(io, id),
            object_size: 1 << order,
            splay: splay.into(),
            active: Cell::new(told.decode(3)?),
            minimum: Cell::new(told.decode(4)?),
            tag_class,
            io: io.clone(),
        })
    }

    async fn change(&self, op: Operation) -> Result<(), ClientError> {
        self.io.operate(self.oid.as_str(), op).await.map(drop)
    }

    /// Tells watchers (a mirror, another tool) that the header has changed, without waiting.
    fn announce(&self) {
        let (io, oid) = (self.io.clone(), self.oid.clone());
        self.io.client().env().go(async move {
            let _ = io.notify(oid, Bytes::new(), NOTICE).await;
        });
    }

    /// How far the image has come.
    pub(crate) async fn position(&self) -> Result<ObjectSetPosition, ClientError> {
        let ask = Operation::new().journal("get_client", |w| w.put(&BString::from(IMAGE)));
        let client: Client = self.io.operate(self.oid.as_str(), ask).await?.decode(0)?;
        Ok(client.commit_position)
    }

    /// Keeps how far it has come.
    pub(crate) async fn keep_position(&self, at: &ObjectSetPosition) -> Result<(), ClientError> {
        let commit = Operation::new().journal_write("client_commit", |w| {
            w.put(&BString::from(IMAGE));
            w.put(at);
        });
        self.change(commit).await?;
        self.announce();
        Ok(())
    }

    /// Whose the newest entries are; EROFS if they are another cluster's.
    pub(crate) async fn check_owner(&self) -> Result<(), ClientError> {
        let (mut after, mut newest) = (0, None);
        loop {
            let ask = Operation::new().journal("tag_list", |w| {
                w.u64(after);
                w.u64(PAGE);
                w.put(&BString::from(IMAGE));
                w.put(&Some(self.tag_class));
            });
            let page: Vec<Tag> = self.io.operate(self.oid.as_str(), ask).await?.decode(0)?;
            let whole = page.len() as u64 == PAGE;
            if let Some(last) = page.into_iter().max_by_key(|tag| tag.tid) {
                // A list after 0 begins anew.
                let again = after != 0 && last.tid <= after;
                after = last.tid;
                newest = Some(last);
                if again {
                    break;
                }
            }
            if !whole {
                break;
            }
        }
        let owner = newest.map(|tag| TagData::from_bytes(&tag.data)).transpose()?;
        match owner.is_none_or(|owner| owner.mirror.is_empty()) {
            true => Ok(()),
            false => Err(Errno::EROFS.into()),
        }
    }

    /// A tag for what a new owner of the lock will write.
    pub(crate) async fn new_tag(&self, at: &ObjectSetPosition) -> Result<u64, ClientError> {
        let before = at.object_positions.first().map(|p| (p.tag_tid, p.entry_tid));
        let data = TagData { before, ..TagData::default() };
        let tid = allocate_tag(&self.io, &self.oid, self.tag_class, &data).await?;
        self.announce();
        Ok(tid)
    }

    /// Goes on to the next set.
    pub(crate) async fn advance(&self) -> Result<(), ClientError> {
        let next = self.active.get() + 1;
        let set = Operation::new().journal_write("set_active_set", |w| w.u64(next));
        match self.change(set).await {
            Ok(()) => self.active.set(next),
            // Another has gone further (a reset).
            Err(ClientError::Errno(Errno::ESTALE)) => {
                let ask = Operation::new().journal("get_active_set", |_| ());
                let active = self.io.operate(self.oid.as_str(), ask).await?.decode(0)?;
                self.active.set(active);
            }
            Err(error) => return Err(error),
        }
        self.announce();
        Ok(())
    }

    pub(crate) fn object(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// Bytes of an object; 0 if it is not there.
    pub(crate) async fn object_len(&self, number: u64) -> Result<u64, ClientError> {
        match self.data.stat(self.object(number)).await {
            Ok((len, _)) => Ok(len),
            Err(ClientError::Errno(Errno::ENOENT)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Some of an object's bytes, fewer at its end.
    pub(crate) async fn read_object(
        &self,
        number: u64,
        offset: u64,
        len: u64,
    ) -> Result<Bytes, ClientError> {
        match self.data.read(self.object(number), offset, len).await {
            Err(ClientError::Errno(Errno::ENOENT)) => Ok(Bytes::new()),
            other => other,
        }
    }

    /// Appends to an object; EOVERFLOW when it is full.
    pub(crate) async fn append(&self, number: u64, data: Bytes) -> Result<(), ClientError> {
        let append = Operation::new().journal_write("append", |w| {
            w.u64(self.object_size);
            w.blob(&data);
        });
        self.data.operate(self.object(number), append).await.map(drop)
    }

    /// Removes the sets that no client needs any more.
    pub(crate) async fn trim(&self) -> Result<(), ClientError> {
        let mut needed = self.active.get();
        for client in self.clients().await?.values() {
            if client.state == CLIENT_DISCONNECTED {
                continue;
            }
            let sets = client.commit_position.object_positions.iter();
            match sets.map(|at| at.object_number / self.splay).min() {
                Some(set) => needed = needed.min(set),
                // It has not begun.
                None => return Ok(()),
            }
        }
        self.remove_sets(needed).await
    }

    /// Removes the sets below `end`.
    async fn remove_sets(&self, end: u64) -> Result<(), ClientError> {
        while self.minimum.get() < end {
            let set = self.minimum.get();
            let objects = set * self.splay..(set + 1) * self.splay;
            let removals = objects.map(|number| {
                // A full cluster gets emptier by it.
                let flags = message_flags::FULL_FORCE | message_flags::FULL_TRY;
                let remove = Operation::new().remove().with_flags(flags);
                self.data.operate(self.object(number), remove)
            });
            for removed in join_all(removals).await {
                match removed {
                    Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                    Err(error) => return Err(error),
                }
            }
            self.minimum.set(set + 1);
            if set < self.active.get() {
                let minimum = Operation::new().journal_write("set_minimum_set", |w| w.u64(set + 1));
                match self.change(minimum).await {
                    Ok(()) | Err(ClientError::Errno(Errno::ESTALE)) => self.announce(),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn clients(&self) -> Result<BTreeMap<BString, Client>, ClientError> {
        let (mut all, mut after) = (BTreeMap::new(), BString::default());
        loop {
            let ask = Operation::new().journal("client_list", |w| {
                w.put(&after);
                w.u64(PAGE);
            });
            let page: Vec<Client> = self.io.operate(self.oid.as_str(), ask).await?.decode(0)?;
            let whole = page.len() as u64 == PAGE;
            let before = after.clone();
            all.extend(page.into_iter().map(|client| (client.id.clone(), client)));
            after = all.keys().next_back().cloned().unwrap_or_default();
            if !whole || after == before {
                return Ok(all);
            }
        }
    }
}

fn prefix(io: &IoCtx, id: &str) -> String {
    format!("journal_data.{}.{id}.", io.pool_id())
}

/// Where the entries are; those in another pool are in no namespace.
fn data_io(io: &IoCtx, pool: i64) -> IoCtx {
    match pool {
        pool if pool >= 0 && pool != io.pool_id() => io.in_pool(pool, &BString::default()),
        _ => io.clone(),
    }
}

async fn allocate_tag(
    io: &IoCtx,
    oid: &str,
    class: u64,
    data: &TagData,
) -> Result<u64, ClientError> {
    loop {
        let ask = Operation::new().journal("get_next_tag_tid", |_| ());
        let tid: u64 = io.operate(oid, ask).await?.decode(0)?;
        let create = Operation::new().journal_write("tag_create", |w| {
            w.u64(tid);
            w.u64(class);
            w.blob(&data.to_bytes());
        });
        match io.operate(oid, create).await {
            Ok(_) => return Ok(tid),
            // Another was faster.
            Err(ClientError::Errno(Errno::ESTALE)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes an image's journal: objects of 2^order bytes (12 to 26, EDOM), `splay` of them written
/// side by side.
pub(crate) async fn create(io: &IoCtx, id: &str, order: u8, splay: u8) -> Result<(), ClientError> {
    if !(12..=26).contains(&order) {
        return Err(Errno::EDOM.into());
    }
    if splay == 0 {
        return Err(Errno::EINVAL.into());
    }
    let oid = header(id);
    let create = Operation::new().journal_write("create", |w| {
        w.u8(order);
        w.u8(splay);
        w.i64(-1);
    });
    io.operate(oid.as_str(), create).await?;
    let tid = allocate_tag(io, &oid, TAG_CLASS_NEW, &TagData::default()).await?;
    let ask = Operation::new().journal("get_tag", |w| w.u64(tid));
    let tag: Tag = io.operate(oid.as_str(), ask).await?.decode(0)?;
    let data = ClientData::Image { tag_class: tag.tag_class, resync: false };
    let register = Operation::new().journal_write("client_register", |w| {
        w.put(&BString::from(IMAGE));
        w.blob(&data.to_bytes());
    });
    io.operate(oid, register).await.map(drop)
}

/// Removes an image's journal, entries first; one that is not there is no fault.
pub(crate) async fn remove(io: &IoCtx, id: &str) -> Result<(), ClientError> {
    match Header::open(io, id).await {
        Ok(opened) => opened.remove_sets(opened.active.get() + 1).await?,
        // Made in part, or something else that only lies in the way.
        Err(ClientError::Errno(Errno::ENOENT | Errno::EINVAL) | ClientError::Decode(_)) => {}
        Err(error) => return Err(error),
    }
    match io.remove(header(id)).await {
        Ok(()) | Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
        Err(error) => Err(error),
    }
}
