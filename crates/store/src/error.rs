//! What a store can answer instead of doing what it was asked.

use core::fmt;
use std::io;

use device::DeviceError;

use crate::CollId;

/// Why a transaction or a read failed.
///
/// A failed transaction has changed nothing. `Device` and `Latched` are the device's fault: the
/// store acknowledges nothing any more and its owner should go down. The others are the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// No such collection (ENOENT).
    NoCollection(CollId),
    /// No such object (ENOENT).
    NoObject,
    /// No such xattr (ENODATA).
    NoAttr,
    /// The collection exists already (EEXIST).
    CollectionExists(CollId),
    /// The collection holds objects (ENOTEMPTY).
    NotEmpty(CollId),
    /// The rename's target or the object to create exists (EEXIST).
    ObjectExists,
    /// The device is full (ENOSPC).
    NoSpace,
    /// An offset or length beyond what an object may have (EFBIG).
    TooBig,
    /// Stored bytes do not match their checksum (EIO). The bytes are not returned.
    Checksum {
        /// Where, in bytes from the start of the device.
        device_offset: u64,
    },
    /// A part of the device without which the store cannot be opened is not to be read (EIO).
    Unreadable {
        /// Where, in bytes from the start of the device.
        device_offset: u64,
        /// What the device said.
        error: DeviceError,
    },
    /// The device failed (EIO).
    Device(DeviceError),
    /// An earlier write or flush failed (EIO): nothing has been acknowledged since.
    Latched,
    /// The device is shorter than it was (EIO): what lay behind its end is gone.
    Shrunk {
        /// Its length in bytes when it was mounted last.
        store_len: u64,
        /// Its length in bytes now.
        device_len: u64,
    },
    /// The store was made for smaller sectors than the device has (EIO).
    Sectors {
        /// What the store writes, in bytes.
        store_len: u32,
        /// What the device takes, in bytes.
        device_len: u32,
    },
    /// What is on the device is no store of this kind, or is damaged (EIO).
    Format(&'static str),
    /// The store is closed (ESHUTDOWN).
    Closed,
}

impl StoreError {
    /// The positive errno a client would see from Ceph.
    pub fn errno(&self) -> i32 {
        match self {
            StoreError::NoCollection(_) | StoreError::NoObject => 2,
            StoreError::NoAttr => 61,
            StoreError::CollectionExists(_) | StoreError::ObjectExists => 17,
            StoreError::NotEmpty(_) => 39,
            StoreError::NoSpace => 28,
            StoreError::TooBig => 27,
            StoreError::Checksum { .. }
            | StoreError::Unreadable { .. }
            | StoreError::Device(_)
            | StoreError::Latched
            | StoreError::Shrunk { .. }
            | StoreError::Sectors { .. }
            | StoreError::Format(_) => 5,
            StoreError::Closed => 108,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::NoCollection(cid) => write!(f, "no collection {cid}"),
            StoreError::NoObject => f.write_str("no such object"),
            StoreError::NoAttr => f.write_str("no such xattr"),
            StoreError::CollectionExists(cid) => write!(f, "collection {cid} exists"),
            StoreError::NotEmpty(cid) => write!(f, "collection {cid} is not empty"),
            StoreError::ObjectExists => f.write_str("object exists"),
            StoreError::NoSpace => f.write_str("no space left in the store"),
            StoreError::TooBig => f.write_str("offset beyond the largest object"),
            StoreError::Checksum { device_offset } => {
                write!(f, "checksum mismatch at device offset {device_offset:#x}")
            }
            StoreError::Unreadable { device_offset, error } => {
                write!(f, "the device cannot be read at offset {device_offset:#x}: {error}")
            }
            StoreError::Device(error) => write!(f, "device error: {error}"),
            StoreError::Latched => f.write_str("the store stopped after a failed write"),
            StoreError::Sectors { store_len, device_len } => write!(
                f,
                "the store was made for sectors of {store_len} bytes, the device is taken for one of {device_len}"
            ),
            StoreError::Shrunk { store_len, device_len } => {
                write!(f, "the device has {device_len} bytes, the store on it {store_len}")
            }
            StoreError::Format(what) => write!(f, "not a readable store: {what}"),
            StoreError::Closed => f.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<io::Error> for StoreError {
    fn from(e: io::Error) -> StoreError {
        StoreError::Device(e.into())
    }
}
