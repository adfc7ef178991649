//! Snapshot ids and the context a write carries.

use core::fmt;

use denc::Denc;

/// A snapshot of a pool.
pub type SnapId = u64;

/// The head: not a snapshot.
pub const NOSNAP: SnapId = u64::MAX - 1;
/// The object of old clusters that held the snap set of a deleted head; also "all clones" in
/// the list-snaps operation.
pub const SNAPDIR: SnapId = u64::MAX;
/// Largest id a snapshot can have.
pub const MAXSNAP: SnapId = u64::MAX - 2;

/// A snap id as Ceph prints it: `head`, `snapdir` or hexadecimal.
pub fn snap_text(snap: SnapId) -> impl fmt::Display {
    fmt::from_fn(move |f| match snap {
        NOSNAP => f.write_str("head"),
        SNAPDIR => f.write_str("snapdir"),
        snap => write!(f, "{snap:x}"),
    })
}

/// The snapshots that exist when a write is made. Wire: SnapContext (u64, vector of u64).
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct SnapContext {
    /// Newest snapshot id of the pool or image.
    pub seq: SnapId,
    /// Existing snapshots, newest first.
    pub snaps: Vec<SnapId>,
}

impl SnapContext {
    /// Whether the ids strictly descend and none is above `seq`; a write with any other context
    /// is refused.
    pub fn is_valid(&self) -> bool {
        if self.seq > MAXSNAP {
            return false;
        }
        if self.snaps.first().is_some_and(|&newest| newest > self.seq) {
            return false;
        }
        self.snaps.windows(2).all(|pair| pair[0] > pair[1]) && !self.snaps.contains(&0)
    }
}

impl fmt::Display for SnapContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}=[", self.seq)?;
        for (i, snap) in self.snaps.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}", snap_text(*snap))?;
        }
        f.write_str("]")
    }
}
