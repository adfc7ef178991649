//! An image's life as a device: added, started, served until somebody stops it, removed.

use std::fs::{File, OpenOptions};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use client::rbd::Image;
use env::{Env, LocalFuture};
use futures_util::future::{Either, select};

use super::control::{ANY_DEVICE, Control};
use super::queue::Queues;
use super::wire::{self, DeviceInfo, Params, SECTOR, feature};
use crate::block::cli::UblkArgs;
use crate::block::connect::{close, connect, open, said};
use crate::block::requests::tell_of_resizes;
use crate::block::spec::ImageSpec;
use crate::failure::Failure;
use crate::output::tell;

/// Bytes of the largest request: a whole object of the usual size.
const REQUEST_MAX: u32 = 4 << 20;
/// Blocks: what old partition tables count in, and what the OSDs like.
const LOGICAL_SHIFT: u8 = 9;
const PHYSICAL_SHIFT: u8 = 12;
/// The smallest range worth giving back (`rbd_discard_granularity_bytes`).
const DISCARD_GRANULARITY: u64 = 64 << 10;
/// Bytes of the largest range given back or zeroed by one request.
const DISCARD_MAX: u64 = 1 << 30;
/// How long users of a stopped device get to close it.
const LEAVING: Duration = Duration::from_secs(5);
/// `prctl` of Linux 5.6 (`include/uapi/linux/prctl.h`).
const PR_SET_IO_FLUSHER: libc::c_int = 57;
/// Commands of control beside those of the tags.
const CONTROL_COMMANDS: usize = 16;
/// The kernel of 6.12 knows no notice of another size.
const RESIZED: &str = "the device keeps its size until it is stopped and started again";

/// `loligo ublk IMAGE`.
pub(super) async fn attach(env: &Env, spec: &ImageSpec, args: &UblkArgs) -> Result<(), Failure> {
    let instead = format!(
        ". As a block device over NBD: `loligo nbd serve {spec} --socket /tmp/image.sock`, then \
         `nbd-client -unix /tmp/image.sock /dev/nbd0` or `qemu-nbd`"
    );
    let commands = usize::from(args.queues) * usize::from(args.depth) + CONTROL_COMMANDS;
    let control = Control::open(env, commands, &instead).await?;
    let told = env.termination();
    let client = connect(env, &args.cluster).await?;
    let image = open(&client, spec, args.read_only).await?;
    let served = match lock(&image, spec).await {
        Ok(()) => serve(env, &control, &image, spec, args, told).await,
        Err(failure) => Err(failure),
    };
    close(env, &image, &spec.to_string()).await;
    client.shutdown();
    served
}

/// Who may not write finds out now, not by errors of a file system.
async fn lock(image: &Image, spec: &ImageSpec) -> Result<(), Failure> {
    if image.is_read_only() || !image.wants_lock() {
        return Ok(());
    }
    image.lock().await.map_err(|e| said(spec, e))
}

async fn serve(
    env: &Env,
    control: &Control,
    image: &Image,
    spec: &ImageSpec,
    args: &UblkArgs,
    told: LocalFuture<()>,
) -> Result<(), Failure> {
    let params = params(image);
    if params.sectors == 0 {
        return Err(Failure::new(format!("{spec} has {} bytes: not one sector", image.size())));
    }
    if !image.size().is_multiple_of(SECTOR) {
        tracing::warn!("{spec}: the last {} bytes are no sector", image.size() % SECTOR);
    }
    let wanted = DeviceInfo {
        queues: args.queues,
        depth: args.depth,
        state: wire::state::DEAD,
        max_request_bytes: REQUEST_MAX,
        device: args.device.unwrap_or(ANY_DEVICE),
        pid: -1,
        flags: feature::IOCTL_ENCODE | feature::USER_COPY,
    };
    let info = control.add(&wanted).await.map_err(|e| cannot_add(&wanted, &e))?;
    never_wait_for_ourselves();
    let served = serve_device(env, control, image, spec, &info, &params, told).await;
    let removed = match env.timeout(LEAVING, control.remove(info.device)).await {
        Ok(removed) => removed.map_err(|e| {
            let device = info.device;
            Failure::new(format!("device {device} cannot be removed: {e}; `loligo ublk --list`"))
        }),
        Err(_) => {
            // The kernel removes it without us, when the last of them has gone.
            tracing::warn!("/dev/ublkb{} is still open; it gives errors only", info.device);
            Ok(())
        }
    };
    served.and(removed)
}

async fn serve_device(
    env: &Env,
    control: &Control,
    image: &Image,
    spec: &ImageSpec,
    info: &DeviceInfo,
    params: &Params,
    mut told: LocalFuture<()>,
) -> Result<(), Failure> {
    let cannot = |what: &str, e: io::Error| Failure::new(format!("{spec}: {what}: {e}"));
    control.set_params(info.device, params).await.map_err(|e| cannot("parameters", e))?;
    let path = format!("/dev/ublkc{}", info.device);
    let file = open_device(&path).map_err(|e| cannot(&path, e))?;
    let queues = Queues::serve(env, &control.ring, file, info, image, spec.to_string())
        .map_err(|e| cannot(&path, e))?;
    let block = format!("/dev/ublkb{}", info.device);
    let served = match start(control, info.device, &queues, &mut told).await {
        Ok(()) => {
            tell!("ublk: {spec} ({} bytes) at {block}", params.sectors * SECTOR);
            tell_of_resizes(env, image, RESIZED);
            match select(Box::pin(queues.ends()), told).await {
                Either::Left((Some(e), _)) => Err(cannot(&block, e)),
                Either::Left((None, _)) => {
                    tracing::info!("{block} is stopped by somebody else");
                    Ok(())
                }
                Either::Right(_) => Ok(()),
            }
        }
        Err(e) => Err(cannot("the device does not start", e)),
    };
    // What the kernel still has to write is written and answered meanwhile.
    let stopped = control.stop(info.device).await.map_err(|e| cannot("stopping", e));
    queues.end().await;
    served.and(stopped)
}

/// Starts the device, unless its queues break or we are told to end before.
async fn start(
    control: &Control,
    device: u32,
    queues: &Rc<Queues>,
    told: &mut LocalFuture<()>,
) -> io::Result<()> {
    let starting = Box::pin(control.start(device));
    let instead = select(Box::pin(queues.ends()), told);
    match select(starting, instead).await {
        Either::Left((result, _)) => result,
        Either::Right((Either::Left((error, _)), _)) => {
            Err(error.unwrap_or_else(|| io::Error::other("it was stopped by somebody else")))
        }
        Either::Right((Either::Right(_), _)) => Err(io::Error::other("told to end")),
    }
}

fn params(image: &Image) -> Params {
    let info = image.info();
    let object = 1u64 << info.order;
    // A stripe's part in one object is the whole object unless the image says otherwise; both are
    // powers of two.
    let optimal = info.stripe_unit.clamp(1 << PHYSICAL_SHIFT, object.max(1 << PHYSICAL_SHIFT));
    Params {
        read_only: image.is_read_only(),
        logical_shift: LOGICAL_SHIFT,
        physical_shift: PHYSICAL_SHIFT,
        optimal_shift: optimal.ilog2() as u8,
        max_sectors: REQUEST_MAX / SECTOR as u32,
        sectors: info.size / SECTOR,
        discard_granularity: DISCARD_GRANULARITY.min(object) as u32,
        max_discard_sectors: (DISCARD_MAX / SECTOR) as u32,
        max_zeroes_sectors: (DISCARD_MAX / SECTOR) as u32,
    }
}

fn open_device(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn cannot_add(wanted: &DeviceInfo, error: &io::Error) -> Failure {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ": run this as root".to_owned(),
        Some(libc::EEXIST) => {
            format!(": /dev/ublkb{} is in use; `loligo ublk --list`", wanted.device)
        }
        Some(libc::ENOSPC) => {
            ": there are as many as there may be; `loligo ublk --list`".to_owned()
        }
        _ => String::new(),
    };
    Failure::new(format!("the kernel adds no ublk device: {error}{advice}"))
}

/// Memory that we ask for must not come from pages that wait to be written to our own device.
fn never_wait_for_ourselves() {
    // SAFETY: no memory is passed.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!("writing under memory pressure may stall (PR_SET_IO_FLUSHER: {error})");
    }
}

const _: () = assert!(REQUEST_MAX <= wire::REQUEST_LIMIT);
