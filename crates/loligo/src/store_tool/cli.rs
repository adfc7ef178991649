//! The words of `loligo store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const OBJECTS: &str = "OBJECT is a name (looked for in all placement groups), a line that 'list' printed, or the \
form that 'dump' shows as \"id\": #POOL:HASH:NAMESPACE:KEY:NAME:SNAP#.";

/// `loligo store`.
#[derive(Debug, Args)]
#[command(after_help = "The OSD must be stopped: a running one holds its store's lock.\n\n\
Examples, on a cluster that 'loligo down' has stopped:\n  \
loligo store --osd 0 stat\n  \
loligo store --osd 0 list --pg 2.7\n  \
loligo store --osd 0 get-bytes my-object /tmp/content\n  \
loligo store --osd 0 fsck --deep\n  \
loligo store --osd 0 export 2.7 /tmp/2.7.export\n  \
loligo store --osd 1 import /tmp/2.7.export\n  \
loligo store --osd 0 migrate --to filestore")]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// Which OSD's store.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// The OSD; may be left out if there is but one
    #[arg(long, value_name = "N", global = true)]
    pub(crate) osd: Option<u32>,
    /// The cluster's folder [default: ./loligo-data]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// The configuration file, where the cluster is not in one folder; osd_data says where the
    /// OSD is
    #[arg(long, short = 'c', value_name = "CONF", global = true, conflicts_with = "dir")]
    pub(crate) conf: Option<PathBuf>,
    /// Set an option for this run
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    pub(crate) set: Vec<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show backend, space, placement groups and how many objects there are
    Stat,
    /// List objects, a line of JSON each, as ceph-objectstore-tool does
    List {
        /// Only those of this name
        name: Option<String>,
        /// Only this placement group (2.7, or 2.7s1 of an erasure coded pool)
        #[arg(long, value_name = "PG")]
        pg: Option<String>,
        /// The OSD's own objects instead: superblock, maps
        #[arg(long, conflicts_with = "pg")]
        meta: bool,
    },
    /// Show what is known of an object: size, extents, object info, xattrs, omap
    #[command(after_help = OBJECTS)]
    Dump {
        /// Which
        object: String,
    },
    /// Write an object's data to a file or standard output
    #[command(after_help = OBJECTS)]
    GetBytes {
        /// Which
        object: String,
        /// Where to [default: standard output]
        file: Option<PathBuf>,
    },
    /// Replace an object's data by what a file or standard input holds; its info gets the new size
    #[command(after_help = OBJECTS)]
    SetBytes {
        /// Which
        object: String,
        /// Where from [default: standard input]
        file: Option<PathBuf>,
    },
    /// Write an xattr's value to standard output, or list their names
    #[command(after_help = OBJECTS)]
    GetAttr {
        /// Which object
        object: String,
        /// As stored: '_' is the object info, 'snapset' the snapshots, a client's begin with '_'
        name: Option<String>,
    },
    /// Set an xattr to what a file or standard input holds
    #[command(after_help = OBJECTS)]
    SetAttr {
        /// Which object
        object: String,
        /// As stored
        name: String,
        /// Where from [default: standard input]
        file: Option<PathBuf>,
    },
    /// Remove an xattr
    #[command(after_help = OBJECTS)]
    RmAttr {
        /// Which object
        object: String,
        /// As stored
        name: String,
    },
    /// Write an omap key's value to standard output, or list the keys
    #[command(after_help = OBJECTS)]
    GetOmap {
        /// Which object
        object: String,
        /// The key
        key: Option<String>,
        /// The omap header instead
        #[arg(long, conflicts_with = "key")]
        header: bool,
    },
    /// Set an omap key to what a file or standard input holds
    #[command(after_help = OBJECTS)]
    SetOmap {
        /// Which object
        object: String,
        /// The key
        key: String,
        /// Where from [default: standard input]
        file: Option<PathBuf>,
    },
    /// Set the omap header to what a file or standard input holds
    #[command(after_help = OBJECTS)]
    SetOmapHeader {
        /// Which object
        object: String,
        /// Where from [default: standard input]
        file: Option<PathBuf>,
    },
    /// Remove an omap key
    #[command(after_help = OBJECTS)]
    RmOmap {
        /// Which object
        object: String,
        /// The key
        key: String,
    },
    /// Remove an object from this OSD: 'ceph pg repair' brings it back from the others
    #[command(after_help = OBJECTS)]
    Remove {
        /// Which
        object: String,
    },
    /// Check the store, and what the OSD keeps in it; exit code 1 if something is wrong and stays so
    Fsck {
        /// Read all data and compare checksums
        #[arg(long)]
        deep: bool,
        /// Put right what can be: what nothing refers to, sums, rows of the snap mapper
        #[arg(long)]
        repair: bool,
    },
    /// Write a placement group into a file that 'import', or Ceph's ceph-objectstore-tool, reads
    Export {
        /// Which, as 2.7
        pg: String,
        /// The file
        file: PathBuf,
    },
    /// Make a placement group from such a file; the OSD must not have it
    Import {
        /// The file
        file: PathBuf,
    },
    /// Add the OSD's maps and key to a file of which a monitor is made where all are lost
    ///
    /// One OSD after the other, all into the same file, which is carried from host to host. Then
    /// 'loligo mon --id a --mkfs --from-osds FILE' makes a monitor of it.
    UpdateMonDb {
        /// The file; made if there is none. It holds keys
        file: PathBuf,
    },
    /// Move the OSD to another backend: copied, compared, exchanged in one step
    ///
    /// The new store is made beside the old one, in a folder OSD.migrate. Nothing of the old one
    /// changes before all of the new one has been read again and found the same; then the two
    /// folders change places. Cut off before that, the OSD is as it was. There must be space for
    /// both.
    Migrate {
        /// inkstore, filestore, kstore, ...; options of a new store (kstore_backend, osd_journal)
        /// by --set
        #[arg(long, value_name = "BACKEND")]
        to: String,
        /// Keep the old store in the folder OSD.old
        #[arg(long)]
        keep_old: bool,
    },
}
