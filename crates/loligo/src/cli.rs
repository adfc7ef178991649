//! The command line: its words, defaults and help. Man pages and shell completion are made from
//! this definition (`loligo man`, `loligo completion`).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::block::cli::{BenchArgs, NbdArgs, RbdArgs, UblkArgs};
use crate::store_tool::cli::StoreArgs;

/// A distributed storage system that speaks Ceph's protocol.
#[derive(Debug, Parser)]
#[command(
    name = "loligo",
    version,
    about = "A distributed storage system that speaks Ceph's protocol",
    after_help = "Try it:\n  loligo up                          a cluster of 1 monitor, 1 manager, 3 OSDs in ./loligo-data\n  export CEPH_CONF=$PWD/loligo-data/ceph.conf\n  ceph -s                            any Ceph 16.2 client works\n  loligo down\n\nDaemons write what they do where the option log_file says, which 'up' sets to DIR/log, else to\nstandard error, and as much as debug_osd, debug_mon, ... say. The environment's LOLIGO_LOG, where it\nis set, says how much: info, warn, debug, or info,osd=debug by crate. Daemons and clients that you\nstart yourself take CEPH_ARGS and CEPH_KEYRING as Ceph's do."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster on this machine, or restart the one in DIR with its data
    Up(UpArgs),
    /// Stop the cluster in DIR; its data stays
    Down(DirArgs),
    /// Show what the cluster in DIR says of itself
    Status(StatusArgs),
    /// Run one monitor in the foreground
    Mon(MonArgs),
    /// Run one manager in the foreground
    Mgr(DaemonArgs),
    /// Run an OSD in the foreground, or several in one process
    Osd(OsdArgs),
    /// Make, list, snapshot, clone and remove block device images
    Rbd(RbdArgs),
    /// Serve images as network block devices
    Nbd(NbdArgs),
    /// Serve an image as a block device of this kernel, /dev/ublkbN
    Ublk(UblkArgs),
    /// Measure reads and writes of an image or of objects, in fio's words
    Bench(BenchArgs),
    /// Look into the store of a stopped OSD, check, repair, export, import and migrate it
    Store(StoreArgs),
    /// Run clusters under a virtual clock and break them; exit code 1 if they break their word
    Sim(SimArgs),
    /// Experiments on storage backends: bytes by cause, latencies, plots and a report
    Lab(lab::cli::LabArgs),
    /// Print a shell completion script
    Completion {
        /// The shell to write for
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    Man {
        /// The folder
        dir: PathBuf,
    },
}

/// Where a cluster lives.
#[derive(Debug, Args)]
pub(crate) struct DirArgs {
    /// The cluster's folder
    #[arg(long, value_name = "DIR", default_value = "./loligo-data")]
    pub(crate) dir: PathBuf,
}

/// `loligo status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The shape of a cluster.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Monitors of a new cluster: 1, 3, 5 or 7; any minority of them may fail [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) mons: Option<u32>,
    /// Managers of a new cluster, 1 to 3: one is active, the others stand by [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) mgrs: Option<u32>,
    /// OSDs, 1 to 256; on a restart, OSDs beyond those there are added [default: 3, or those that
    /// are there]
    #[arg(long, value_name = "N")]
    pub(crate) osds: Option<u32>,
    /// Storage backend of new OSDs, also of those that a restart adds: inkstore; bluestore (data on a raw
    /// device, metadata in RocksDB); filestore (files, with a journal); kstore (everything
    /// in RocksDB or LevelDB, see kstore_backend); memstore (in memory: saved when the OSD is stopped, gone
    /// when it is killed)
    /// [default: inkstore, or what the cluster was made with]
    #[arg(long, value_name = "NAME")]
    pub(crate) store: Option<String>,
    /// Copies of each object in new pools of a new cluster, 1 to 10 (osd_pool_default_size) [default: 3, or the number of OSDs if that is less]
    #[arg(long, value_name = "REPLICAS")]
    pub(crate) size: Option<u32>,
    /// Size of each new OSD's device file, also of those that a restart adds; space is taken as data is
    /// written [default: 10G, or what the cluster was made with]
    #[arg(long, value_name = "SIZE")]
    pub(crate) osd_size: Option<String>,
    /// OSDs that this start puts into one process: less CPU for each operation and less memory, but they
    /// are killed together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) osds_per_process: u32,
    /// Threads that OSDs of one process are spread over [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads_per_process: Option<u32>,
    /// CephFS: so many of Ceph's metadata servers (Debian's package ceph-mds), 1 to 8, and a file system 'cephfs' if
    /// there is none; one is active, the others wait for its end. Later starts start them, too; more can be added
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8), conflicts_with = "single_process")]
    pub(crate) mds: Option<u32>,
    /// S3: Ceph's gateway (Debian's package radosgw) at this port of 127.0.0.1, also for later starts
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "single_process")]
    pub(crate) rgw_port: Option<u16>,
    /// Port of the first monitor (messenger v2); others have the ports after it [default: 3300, or what the cluster in DIR has]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Set an option of all daemons, for this and later starts (in DIR/ceph.conf); those that run already get
    /// it when they are started again
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Keep the daemons attached to this terminal; Ctrl-C stops them
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Run all daemons as threads of this process, in the foreground (for tests)
    #[arg(long)]
    pub(crate) single_process: bool,
}

/// A monitor.
#[derive(Debug, Args)]
pub(crate) struct MonArgs {
    /// Write the monitor map of this monitor, which is stopped, to FILE ('monmaptool' shows and changes it) and exit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inject_monmap", "mkfs"])]
    pub(crate) extract_monmap: Option<PathBuf>,
    /// Give this monitor, which is stopped, the map in FILE, which names no other, and exit: started, it
    /// leads alone. For when a majority of the monitors is gone for good
    #[arg(long, value_name = "FILE", conflicts_with = "mkfs")]
    pub(crate) inject_monmap: Option<PathBuf>,
    /// With --mkfs, of a cluster whose monitors are all lost: make this monitor's data of what
    /// 'loligo store update-mon-db' has collected of its OSDs in FILE
    #[arg(long, value_name = "FILE", requires = "mkfs", conflicts_with_all = ["extract_monmap", "inject_monmap"])]
    pub(crate) from_osds: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

/// A monitor or a manager.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The daemon's id: a, x
    #[arg(long, short = 'i', value_name = "ID", required = true)]
    pub(crate) id: Vec<String>,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// OSDs of one process.
#[derive(Debug, Args)]
pub(crate) struct OsdArgs {
    /// The OSD's number. Several (--id 0 --id 1 --id 2) share this process, and hand each other what they
    /// say instead of sending it; a panic or a kill ends all of them, a failed device only its own
    #[arg(long, short = 'i', value_name = "ID", required = true)]
    pub(crate) id: Vec<String>,
    /// Threads that several OSDs are spread over [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
    /// With --mkfs: the UUID that 'ceph osd new' was given
    #[arg(long, value_name = "UUID", requires = "mkfs")]
    pub(crate) osd_uuid: Option<String>,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// How a daemon is started.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The configuration file
    #[arg(long, short = 'c', env = "CEPH_CONF", default_value = "/etc/ceph/ceph.conf")]
    pub(crate) conf: PathBuf,
    /// Create the daemon's data and exit; an OSD's that is there stays. A monitor of a cluster whose
    /// others run gets its state from them when it starts
    #[arg(long)]
    pub(crate) mkfs: bool,
    /// Set an option for this run; above the configuration file
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Simulated clusters.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The first life's seed; the same seed in the same binary gives the same life
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Go on with the next seeds for so long (minutes of this machine's time)
    #[arg(long, value_name = "M", default_value_t = 1.0)]
    pub(crate) minutes: f64,
    /// Live so many lives at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) lives: Option<u64>,
    /// OSDs of each cluster, 3 at least [default: 3 to 5, by the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=16))]
    pub(crate) osds: Option<u32>,
    /// Monitors of each cluster [default: 1 or 3, by the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7))]
    pub(crate) mons: Option<u32>,
    /// OSDs that share a process [default: 1, in one life of four 2 or 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) osds_per_process: Option<u32>,
    /// What may go wrong: osd, power, mon, mgr, loss, partition, slow, disk, clock, freeze, admin,
    /// rot, aimed (see --aim), or none; and what may be done: grow (more placement groups), shrink
    /// (and fewer), remove (OSDs), snaps (of the pool) [default: what may go wrong, and in one life
    /// of five what may be done]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) faults: Option<Vec<String>>,
    /// Lives in which one thing is aimed at: unflushed, island, frozen, intervals, thin, resets
    #[arg(long, value_name = "NAME")]
    pub(crate) aim: Option<String>,
    /// Short lives, as the test suite has them
    #[arg(long)]
    pub(crate) short: bool,
    /// The clients' pool is erasure coded
    #[arg(long)]
    pub(crate) erasure: bool,
    /// Make the first life that goes wrong smaller while it goes wrong in the same way: faults,
    /// clients, objects and time are left out (for --minutes more)
    #[arg(long)]
    pub(crate) minimise: bool,
    /// Leave parts out, as --minimise prints them: without=osd+mon,skip=osd-0-3,seconds=2,clients=1,objects=1,again=1
    #[arg(long, value_name = "PARTS")]
    pub(crate) cut: Option<String>,
    /// Write what happened in the life that went wrong (or, with --lives 1, in the one life): a
    /// page with a drawing if the name ends in .html, a drawing if in .svg, or text
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Print a line of JSON for each life and one for all
    #[arg(long)]
    pub(crate) json: bool,
    /// Plant this bug on purpose
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "NAME", value_parser = env::MUTANTS.map(|(name, _)| name))]
    pub(crate) mutant: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The pages of monitors and managers showed what only OSDs have, and a run of no lives at all
    /// was a success.
    #[test]
    fn each_command_has_its_own_arguments() {
        Cli::command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("loligo osd --id 0 --id 1 -c conf --threads 2").is_ok());
        assert!(parse("loligo osd --id 0 -c conf --mkfs --osd-uuid u").is_ok());
        assert!(parse("loligo osd --id 0 -c conf --osd-uuid u").is_err());
        assert!(parse("loligo mon --id a -c conf --mkfs").is_ok());
        assert!(parse("loligo mon --id a -c conf --threads 2").is_err());
        assert!(parse("loligo mon --id a -c conf --inject-monmap f").is_ok());
        assert!(parse("loligo mon --id a -c conf --mkfs --inject-monmap f").is_err());
        assert!(parse("loligo mgr --id x -c conf --extract-monmap f").is_err());
        assert!(parse("loligo mgr --id x -c conf --mkfs --osd-uuid u").is_err());
        assert!(parse("loligo sim --lives 0").is_err());
        assert!(parse("loligo bench rados p --runtime 0").is_err());
    }
}
