//! `loligo rbd`: the few image commands needed without Ceph's own `rbd`, printed as it does.

use client::rbd::{self, CreateOptions, Image, ImageInfo, OpenOptions, features};
use client::{Client, ClientError, IoCtx};
use env::Env;
use serde_json::json;
use types::Errno;
use types::osd::ops::message_flags;

use super::cli::{CreateArgs, RbdArgs, RbdCommand, SnapCommand};
use super::connect::{connect, open, pool, said};
use super::spec::{ImageSpec, bytes_text};
use crate::failure::Failure;
use crate::output::show;

/// Runs the command.
pub(crate) fn run(args: RbdArgs) -> Result<(), Failure> {
    env::real::Runtime::new()?.block_on(|env: Env| async move {
        let client = connect(&env, &args.cluster).await?;
        let result = run_with(&client, args.command).await;
        client.shutdown();
        result
    })
}

async fn run_with(client: &Client, command: RbdCommand) -> Result<(), Failure> {
    match command {
        RbdCommand::Create { image, size, options } => {
            without_snap(&image)?;
            let io = pool(client, &image.pool, &image.namespace).await?;
            let options = create_options(client, &options).await?;
            rbd::create(&io, &image.image, size, &options).await.map_err(|e| said(&image, e))
        }
        RbdCommand::Ls { pool: name } => {
            let (name, namespace) = name.split_once('/').unwrap_or((&name, ""));
            let io = pool(client, name, namespace).await?;
            let images = rbd::list(&io).await.map_err(|e| Failure::new(e.to_string()))?;
            images.keys().for_each(|image| show!("{image}"));
            Ok(())
        }
        RbdCommand::Info { image, json } => info(client, &image, json).await,
        RbdCommand::Rm { image } => {
            without_snap(&image)?;
            let io = pool_that_empties(client, &image).await?;
            rbd::remove(&io, &image.image).await.map_err(|e| match e {
                ClientError::Errno(Errno::EINVAL) => Failure::new(format!(
                    "{image}: {e}: it is a copy of another cluster's image; 'rbd mirror image \
                     disable --force {image}' parts it from that, then try again"
                )),
                _ => said(&image, e),
            })
        }
        RbdCommand::Resize { image, size, allow_shrink } => {
            without_snap(&image)?;
            let open = open(client, &image, false).await?;
            if size < open.size() && !allow_shrink {
                open.close().await.map_err(|e| said(&image, e))?;
                return Err(Failure::new(format!(
                    "{image} is larger; --allow-shrink cuts it and what it holds there"
                )));
            }
            finish(&open, &image, open.resize(size).await).await
        }
        RbdCommand::Snap { command } => snap(client, command).await,
        RbdCommand::Clone { parent, child, options } => {
            let snap = snap_of(&parent)?;
            without_snap(&child)?;
            let from = pool(client, &parent.pool, &parent.namespace).await?;
            let to = pool(client, &child.pool, &child.namespace).await?;
            let options = create_options(client, &options).await?;
            rbd::clone(&from, &parent.image, snap, &to, &child.image, &options)
                .await
                .map_err(|e| said(&child, e))
        }
        RbdCommand::Flatten { image } => {
            without_snap(&image)?;
            let open = open(client, &image, false).await?;
            finish(&open, &image, open.flatten().await).await
        }
    }
}

/// What makes a full pool emptier does not wait until it is.
async fn pool_that_empties(client: &Client, spec: &ImageSpec) -> Result<IoCtx, Failure> {
    Ok(pool(client, &spec.pool, &spec.namespace).await?.with_flags(message_flags::FULL_TRY))
}

async fn finish(
    image: &Image,
    spec: &ImageSpec,
    result: Result<(), ClientError>,
) -> Result<(), Failure> {
    let closed = image.close().await;
    result.and(closed).map_err(|e| said(spec, e))
}

fn snap_of(spec: &ImageSpec) -> Result<&str, Failure> {
    spec.snap.as_deref().ok_or_else(|| Failure::new(format!("{spec}: write IMAGE@SNAP")))
}

/// What is done to a whole image is not meant for a snapshot of it.
fn without_snap(spec: &ImageSpec) -> Result<(), Failure> {
    match spec.snap {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!(
            "{spec}: this is done to a whole image, which is named without a snapshot"
        ))),
    }
}

async fn snap(client: &Client, command: SnapCommand) -> Result<(), Failure> {
    let spec = match &command {
        SnapCommand::Ls { image } => {
            let open = open(client, image, true).await?;
            show!("{:>6}  {:<24} {:>10}  PROTECTED", "SNAPID", "NAME", "SIZE");
            for snap in open.snapshots().iter().filter(|snap| snap.user) {
                let protected = if snap.protected { "yes" } else { "" };
                let size = bytes_text(snap.size);
                show!("{:>6}  {:<24} {size:>10}  {protected}", snap.id, snap.name);
            }
            return finish(&open, image, Ok(())).await;
        }
        SnapCommand::Create { snap }
        | SnapCommand::Rm { snap }
        | SnapCommand::Rollback { snap }
        | SnapCommand::Protect { snap }
        | SnapCommand::Unprotect { snap } => snap,
    };
    let name = snap_of(spec)?;
    let head = ImageSpec { snap: None, ..spec.clone() };
    let opened = match &command {
        SnapCommand::Rm { .. } => {
            let io = pool_that_empties(client, &head).await?;
            Image::open(&io, &head.image, &OpenOptions::default()).await.map_err(|e| said(&head, e))
        }
        _ => open(client, &head, false).await,
    };
    let image = opened?;
    let result = match &command {
        SnapCommand::Create { .. } => image.snap_create(name).await,
        SnapCommand::Rm { .. } => image.snap_remove(name).await,
        SnapCommand::Rollback { .. } => image.snap_rollback(name).await,
        SnapCommand::Protect { .. } => image.snap_protect(name).await,
        SnapCommand::Unprotect { .. } => image.snap_unprotect(name).await,
        SnapCommand::Ls { .. } => Ok(()),
    };
    finish(&image, spec, result).await
}

async fn create_options(client: &Client, args: &CreateArgs) -> Result<CreateOptions, Failure> {
    if let Some(name) = &args.data_pool {
        pool(client, name, "").await?;
    }
    if !args.object_size.is_power_of_two() {
        return Err(Failure::new("--object-size must be a power of two from 4K to 32M"));
    }
    let mut options = CreateOptions {
        order: args.object_size.ilog2() as u8,
        stripe_unit: args.stripe_unit.unwrap_or(0),
        stripe_count: args.stripe_count.unwrap_or(0),
        data_pool: args.data_pool.clone(),
        ..CreateOptions::default()
    };
    if let Some(names) = &args.image_feature {
        options.features = 0;
        for name in names {
            options.features |= features::parse(name)
                .ok_or_else(|| Failure::new(format!("there is no feature {name}")))?;
        }
    }
    Ok(options)
}

async fn info(client: &Client, spec: &ImageSpec, as_json: bool) -> Result<(), Failure> {
    let image = open(client, spec, true).await?;
    let info = image.info();
    let snapshots = image.snapshots().len();
    // Ids where it is in the trash.
    let parent_names = image.parent_names().await.ok();
    image.close().await.map_err(|e| said(spec, e))?;
    let pools = client.osdmap();
    let pool_name = |id: i64| pools.pool_names.get(&id).cloned().unwrap_or_else(|| id.to_string());
    if as_json {
        let mut value = json!({
            "name": info.name,
            "id": info.id,
            "size": info.size,
            "objects": info.objects,
            "order": info.order,
            "object_size": 1u64 << info.order,
            "snapshot_count": snapshots,
            "block_name_prefix": info.prefix,
            "format": 2,
            "features": features::names(info.features),
        });
        if let Some(pool) = info.data_pool {
            value["data_pool"] = json!(pool_name(pool));
        }
        if let Some(parent) = &info.parent {
            value["parent"] = json!({
                "pool": pool_name(parent.spec.pool_id),
                "pool_namespace": parent.spec.pool_namespace.to_string(),
                "image": parent_names.as_ref().map(|(image, _)| image),
                "id": parent.spec.image_id.to_string(),
                "snapshot": parent_names.as_ref().map(|(_, snap)| snap),
                "snap_id": parent.spec.snap_id,
                "overlap": parent.overlap,
            });
        }
        show!("{value:#}");
        return Ok(());
    }
    print_info(&info, snapshots, parent_names, pool_name);
    Ok(())
}

fn print_info(
    info: &ImageInfo,
    snapshots: usize,
    parent_names: Option<(String, String)>,
    pool_name: impl Fn(i64) -> String,
) {
    show!("rbd image '{}':", info.name);
    show!("\tsize {} in {} objects", bytes_text(info.size), info.objects);
    show!("\torder {} ({} objects)", info.order, bytes_text(1 << info.order));
    show!("\tsnapshot_count: {snapshots}");
    show!("\tid: {}", info.id);
    if let Some(pool) = info.data_pool {
        show!("\tdata_pool: {}", pool_name(pool));
    }
    show!("\tblock_name_prefix: {}", info.prefix);
    show!("\tformat: 2");
    show!("\tfeatures: {}", features::names(info.features).join(", "));
    if let Some(parent) = &info.parent {
        let pool = pool_name(parent.spec.pool_id);
        let namespace = &parent.spec.pool_namespace;
        let place = match namespace.is_empty() {
            true => pool,
            false => format!("{pool}/{namespace}"),
        };
        match parent_names {
            Some((image, snap)) => show!("\tparent: {place}/{image}@{snap}"),
            None => {
                let (id, snap) = (&parent.spec.image_id, parent.spec.snap_id);
                show!("\tparent: {place}/{id} at snapshot {snap} (its image is in the trash)");
            }
        }
        show!("\toverlap: {}", bytes_text(parent.overlap));
    }
    if info.stripe_count > 1 {
        show!("\tstripe unit: {}", bytes_text(info.stripe_unit));
        show!("\tstripe count: {}", info.stripe_count);
    }
}
