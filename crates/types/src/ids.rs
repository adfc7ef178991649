//! Plain numbers that name things.

/// An OSD map epoch; 0 is "no map yet".
pub type Epoch = u32;

/// A pool; negative ids are internal ones (temporary and metadata objects).
pub type PoolId = i64;

/// An OSD; [`OSD_NONE`] stands for a hole in an `up` or `acting` set.
pub type OsdId = i32;

/// CRUSH_ITEM_NONE: the position of an erasure coded set that has no OSD.
pub const OSD_NONE: OsdId = 0x7fff_ffff;
