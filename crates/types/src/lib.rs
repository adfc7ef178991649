//! The words of the protocol: ids, names, addresses, versions, objects, and the structures that
//! OSDs persist and send (`osd`). Values with an encoding, an order and a text form; no behaviour
//! of a daemon lives here.
//!
//! Relies on `denc` alone. Rust names drop Ceph's `_t`: `pg_info_t` is [`osd::PgInfo`].

pub mod addr;
pub mod ahead;
pub mod bufferlist;
pub mod crc;
pub mod entity;
pub mod errno;
pub mod features;
pub mod hash;
pub mod hobject;
pub mod ids;
pub mod interval_set;
pub mod locator;
pub mod message;
pub mod osd;
pub mod page_sums;
pub mod pg;
pub mod reqid;
pub mod snap;
pub mod time;
pub mod uuid;
pub mod version;

pub use addr::{AddrType, AddrVec, EntityAddr};
pub use bufferlist::BufferList;
pub use entity::{AuthEntityName, EntityName};
pub use errno::Errno;
pub use hobject::{GhObject, HObject};
pub use ids::{Epoch, OsdId, PoolId};
pub use interval_set::IntervalSet;
pub use locator::ObjectLocator;
pub use message::{MsgHeader, RawMessage};
pub use page_sums::PageSums;
pub use pg::{PgId, PgShard, SpgId};
pub use reqid::OsdReqId;
pub use snap::{NOSNAP, SNAPDIR, SnapContext, SnapId};
pub use time::{Span, UTime};
pub use uuid::Uuid;
pub use version::EVersion;
