//! The words of the block commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::spec::{ImageSpec, parse_bytes, parse_mib};

/// Which cluster, and who we are.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// The configuration file [default: ./loligo-data/ceph.conf or /etc/ceph/ceph.conf]
    #[arg(long, short = 'c', value_name = "CONF", env = "CEPH_CONF", global = true)]
    pub(crate) conf: Option<PathBuf>,
    /// The user, client.ID [default: that of CEPH_ARGS, or admin]
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) id: Option<String>,
}

/// `loligo rbd`.
#[derive(Debug, Args)]
pub(crate) struct RbdArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: RbdCommand,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub(crate) enum RbdCommand {
    /// Make an image
    Create {
        /// POOL/IMAGE
        image: ImageSpec,
        /// Its size, as 10G; in MiB without a unit
        #[arg(long, short = 's', value_parser = parse_mib)]
        size: u64,
        #[command(flatten)]
        options: CreateArgs,
    },
    /// List the images of a pool
    Ls {
        /// POOL or POOL/NAMESPACE
        #[arg(default_value = super::spec::DEFAULT_POOL)]
        pool: String,
    },
    /// Show what an image is like
    Info {
        /// POOL/IMAGE
        image: ImageSpec,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an image and its content
    Rm {
        /// POOL/IMAGE
        image: ImageSpec,
    },
    /// Grow an image, or cut it
    Resize {
        /// POOL/IMAGE
        image: ImageSpec,
        /// Its new size; in MiB without a unit
        #[arg(long, short = 's', value_parser = parse_mib)]
        size: u64,
        /// Content behind the new size may go
        #[arg(long)]
        allow_shrink: bool,
    },
    /// Snapshots
    Snap {
        #[command(subcommand)]
        command: SnapCommand,
    },
    /// Make an image whose unwritten parts are a snapshot of another
    Clone {
        /// POOL/IMAGE@SNAP; protected ones make clones that any client understands
        parent: ImageSpec,
        /// POOL/IMAGE
        child: ImageSpec,
        #[command(flatten)]
        options: CreateArgs,
    },
    /// Copy into a clone what it still shares, and part it from its parent
    Flatten {
        /// POOL/IMAGE
        image: ImageSpec,
    },
}

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapCommand {
    /// Take a snapshot
    Create {
        /// POOL/IMAGE@SNAP
        snap: ImageSpec,
    },
    /// List an image's snapshots
    Ls {
        /// POOL/IMAGE
        image: ImageSpec,
    },
    /// Remove a snapshot
    Rm {
        /// POOL/IMAGE@SNAP
        snap: ImageSpec,
    },
    /// Take the image back to a snapshot
    Rollback {
        /// POOL/IMAGE@SNAP
        snap: ImageSpec,
    },
    /// Protect a snapshot from removal
    Protect {
        /// POOL/IMAGE@SNAP
        snap: ImageSpec,
    },
    /// End the protection
    Unprotect {
        /// POOL/IMAGE@SNAP
        snap: ImageSpec,
    },
}

/// What a new image is like.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Size of its objects
    #[arg(long, value_parser = parse_bytes, default_value = "4M")]
    pub(crate) object_size: u64,
    /// Features, with commas; journaling is another [default: layering,exclusive-lock,object-map,fast-diff,deep-flatten]
    #[arg(long, value_delimiter = ',')]
    pub(crate) image_feature: Option<Vec<String>>,
    /// Bytes of a stripe in one object
    #[arg(long, value_parser = parse_bytes, requires = "stripe_count")]
    pub(crate) stripe_unit: Option<u64>,
    /// Objects of a stripe
    #[arg(long, requires = "stripe_unit")]
    pub(crate) stripe_count: Option<u64>,
    /// The pool of the content, if another
    #[arg(long, value_name = "POOL")]
    pub(crate) data_pool: Option<String>,
}

/// `loligo nbd`.
#[derive(Debug, Args)]
pub(crate) struct NbdArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: NbdCommand,
}

/// What to do with network block devices.
#[derive(Debug, Subcommand)]
pub(crate) enum NbdCommand {
    /// Serve images to nbd-client, qemu, nbdcopy, ... until stopped (Ctrl-C)
    #[command(
        after_help = "Try it:\n  loligo rbd create rbd/disk --size 10G\n  loligo nbd serve rbd/disk --socket /tmp/disk.sock\nand, while that runs, one of:\n  nbd-client -unix /tmp/disk.sock /dev/nbd0              a block device (kernel module nbd)\n  qemu-img info 'nbd+unix:///rbd/disk?socket=/tmp/disk.sock'\n  nbdcopy file.img 'nbd+unix:///rbd/disk?socket=/tmp/disk.sock'"
    )]
    Serve(NbdServeArgs),
    /// List what a server offers
    List {
        /// unix:PATH or ADDRESS:PORT
        #[arg(default_value = "127.0.0.1:10809")]
        server: String,
    },
}

/// `loligo nbd serve`.
#[derive(Debug, Args)]
pub(crate) struct NbdServeArgs {
    /// POOL/IMAGE[@SNAP]; each is an export of that name, the first one also the default
    #[arg(required = true)]
    pub(crate) images: Vec<ImageSpec>,
    /// Listen on this unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) socket: Option<PathBuf>,
    /// Listen on this address; there is no encryption and no password [default: 127.0.0.1:10809]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Refuse writes, and take no lock
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// `loligo ublk`.
#[derive(Debug, Args)]
#[command(
    after_help = "Try it (as root):\n  modprobe ublk_drv\n  loligo rbd create rbd/disk --size 10G\n  loligo ublk rbd/disk                  prints /dev/ublkbN and serves it until Ctrl-C\nand, while that runs:\n  mkfs.ext4 /dev/ublkb0 && mount /dev/ublkb0 /mnt\n  umount /mnt && loligo ublk --stop /dev/ublkb0\nIf the server is killed (-9) the device is gone, its users get errors, and nothing that was\nacknowledged is lost. An image must not be mounted for writing in two places."
)]
pub(crate) struct UblkArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// POOL/IMAGE[@SNAP]
    #[arg(required_unless_present_any = ["list", "stop"])]
    pub(crate) image: Option<ImageSpec>,
    /// Refuse writes, and take no lock; snapshots are always so
    #[arg(long, requires = "image")]
    pub(crate) read_only: bool,
    /// The device's number [default: the first that is free]
    #[arg(long, value_name = "N", requires = "image")]
    pub(crate) device: Option<u32>,
    /// Queues into which the kernel puts requests; one thread serves them all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) queues: u16,
    /// Requests of each queue that are under way at a time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
    /// List the devices there are, and who serves them
    #[arg(long, conflicts_with_all = ["image", "stop"])]
    pub(crate) list: bool,
    /// Stop and remove a device: what the kernel still holds is written, its server ends
    #[arg(long, value_name = "DEVICE", conflicts_with = "image", value_parser = super::ublk::parse_device)]
    pub(crate) stop: Option<u32>,
    /// With --stop: although somebody uses it
    #[arg(long, requires = "stop")]
    pub(crate) force: bool,
}

/// `loligo bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Reads and writes of an image: IOPS, bandwidth, latency
    #[command(
        after_help = "Try it:\n  loligo rbd create rbd/disk --size 1G\n  loligo bench rbd rbd/disk --rw randwrite --bs 4k --iodepth 32 --runtime 10\n  loligo bench rbd rbd/disk --rw read --bs 4M --iodepth 4 --runtime 10"
    )]
    Rbd {
        /// POOL/IMAGE; its content is overwritten by writes
        image: ImageSpec,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Reads and writes of objects of a pool, which are removed at the end
    #[command(
        after_help = "Try it:\n  loligo bench rados rbd --rw write --bs 4M --iodepth 16 --runtime 10"
    )]
    Rados {
        /// The pool
        pool: String,
        /// Bytes of each object
        #[arg(long, value_parser = parse_bytes, default_value = "4M")]
        object_size: u64,
        #[command(flatten)]
        load: LoadArgs,
    },
}

/// The pattern of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Sequential reads and writes
    Rw,
    /// Random reads and writes
    Randrw,
}

/// A load, in fio's words.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// What is done, in which order of offsets
    #[arg(long, value_enum, default_value = "randwrite")]
    pub(crate) rw: Pattern,
    /// Bytes of each request: 4k, 1M
    #[arg(long, value_parser = parse_bytes, default_value = "4k")]
    pub(crate) bs: u64,
    /// Requests that each job keeps under way
    #[arg(long, default_value_t = 1)]
    pub(crate) iodepth: u32,
    /// Jobs, each a client of its own in a thread of its own (images with exclusive lock: one)
    #[arg(long, default_value_t = 1)]
    pub(crate) numjobs: u32,
    /// Bytes of the image that are touched, or of objects [default: the whole image; 1G of objects]
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) size: Option<u64>,
    /// Seconds to measure; without it, until --size bytes are done
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) runtime: Option<u64>,
    /// Seconds of load before measuring begins
    #[arg(long = "ramp_time", alias = "ramp-time", value_name = "SECONDS", default_value_t = 0)]
    pub(crate) ramp_time: u64,
    /// Share of reads with --rw rw and randrw
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) rwmixread: u32,
    /// Read back what was written, and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Where random offsets and contents come from; the same number gives the same load
    #[arg(long, default_value_t = 1)]
    pub(crate) randseed: u64,
    /// Print JSON in the shape of `fio --output-format=json`
    #[arg(long)]
    pub(crate) json: bool,
}
