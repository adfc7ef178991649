//! The daemon: owns the PGs of one OSD, its messengers, its session with the monitor, its maps.

use std::rc::Rc;

use auth::Keyring;
use command::CommandReply;
use config::Config;
use env::{Env, LocalFuture};
use store::{ObjectStore, StoreError};
use types::Uuid;

/// What a new OSD is made with.
#[derive(Debug, Clone, Copy)]
pub struct MkfsOptions {
    /// Its number.
    pub whoami: i32,
    /// The cluster it belongs to.
    pub cluster_fsid: Uuid,
    /// Its own identity, as told to `osd new`.
    pub osd_fsid: Uuid,
}

/// Why an OSD does not start.
#[derive(Debug)]
pub enum OsdError {
    /// The store fails; nothing more can be done with it.
    Store(StoreError),
    /// The store holds no OSD: run `--mkfs`.
    NoSuperblock,
    /// What the store says of itself cannot be read.
    BadSuperblock(denc::Error),
    /// The store belongs to another OSD.
    WrongOsd {
        /// The number in the superblock.
        found: i32,
        /// The number asked for.
        expected: i32,
    },
    /// An address cannot be listened on.
    Bind(std::io::Error),
    /// The monitor could not be reached or refused us.
    Monitor(String),
}

impl From<StoreError> for OsdError {
    fn from(e: StoreError) -> OsdError {
        OsdError::Store(e)
    }
}

impl core::fmt::Display for OsdError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OsdError::Store(e) => write!(f, "store: {e:?}"),
            OsdError::NoSuperblock => f.write_str("the store holds no OSD yet (run with --mkfs)"),
            OsdError::BadSuperblock(e) => write!(f, "superblock: {e}"),
            OsdError::WrongOsd { found, expected } => {
                write!(f, "the store belongs to osd.{found}, not to osd.{expected}")
            }
            OsdError::Bind(e) => write!(f, "cannot listen: {e}"),
            OsdError::Monitor(e) => write!(f, "monitor: {e}"),
        }
    }
}

impl std::error::Error for OsdError {}

/// A running OSD.
pub struct Osd {
    env: Env,
    config: Rc<Config>,
    store: Rc<dyn ObjectStore>,
}

impl Osd {
    /// Makes an empty, mounted store into an OSD's: superblock and meta collection.
    pub async fn mkfs(
        env: &Env,
        store: &Rc<dyn ObjectStore>,
        options: MkfsOptions,
    ) -> Result<(), OsdError> {
        let _ = (env, store, options);
        Err(OsdError::NoSuperblock)
    }

    /// Starts an OSD on a mounted store: loads maps and PGs, listens, authenticates, and boots in
    /// the background. Returns once it listens and the monitor knows it authenticated.
    /// `keyring` must hold `osd.<id>`'s key (unless auth is none).
    pub async fn start(
        env: Env,
        config: Rc<Config>,
        keyring: Keyring,
        store: Rc<dyn ObjectStore>,
    ) -> Result<Rc<Osd>, OsdError> {
        Ok(Rc::new(Osd { env, config, store }))
        .inspect(|_| drop(keyring))
    }

    /// A command from the admin socket: the JSON text of an object with "prefix".
    pub fn admin_command(self: &Rc<Self>, json: String) -> LocalFuture<CommandReply> {
        let _ = (json, &self.config);
        Box::pin(async { CommandReply::default() })
    }

    /// Clean stop: tells the monitor, stops taking ops, closes the store.
    pub async fn shutdown(self: &Rc<Self>) {
        let _ = self.env.now();
        let _ = self.store.close().await;
    }

    /// Completes when the OSD has to go down (store failure, fsid mismatch), with the reason.
    pub fn failed(self: &Rc<Self>) -> LocalFuture<String> {
        Box::pin(std::future::pending())
    }
}
