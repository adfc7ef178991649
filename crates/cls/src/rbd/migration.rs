//! Live migration: what an image's header says of it (`src/cls/rbd/cls_rbd.cc` at v16.2).

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::features::MIGRATING;
use super::keys::{self, arguments};
use super::old_format::{self, MIGRATING_TEXT, TEXT};
use super::snapshot::MigrationSpec;
use crate::{ObjectContext, argument};

const KEY: &[u8] = b"migration";
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

async fn read(ctx: &mut dyn ObjectContext) -> Result<MigrationSpec, Errno> {
    let is_migrating = match keys::find::<u64>(ctx, b"features").await? {
        Some(features) => features & MIGRATING != 0,
        None => old_format::is_migrating(ctx).await?,
    };
    if !is_migrating {
        return Err(Errno::EINVAL);
    }
    keys::read(ctx, KEY).await
}

/// What is written of a text: all but its last byte, a zero, which is there already. (Clones tell what has been written since.)
fn without_end(text: &'static [u8]) -> Bytes {
    Bytes::from_static(&text[..text.len() - 1])
}

pub(super) async fn set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let spec: MigrationSpec = argument(input)?;
    if keys::find_raw(ctx, KEY).await?.is_some() {
        return Err(Errno::EEXIST);
    }
    match keys::find::<u64>(ctx, b"features").await? {
        None => {
            if old_format::is_migrating(ctx).await? {
                return Err(Errno::EEXIST);
            }
            if spec.header_type != SOURCE {
                return Err(Errno::EINVAL);
            }
            ctx.write(0, without_end(MIGRATING_TEXT)).await?;
        }
        Some(features) if features & MIGRATING == 0 => {
            keys::write(ctx, b"features", &(features | MIGRATING)).await?;
        }
        // The destination is created with the feature.
        Some(_) if spec.header_type == DESTINATION => {}
        Some(_) => return Err(Errno::EEXIST),
    }
    keys::write(ctx, KEY, &spec).await
}

pub(super) async fn set_state(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (state, description) = arguments(input, |r| Ok((r.u8()?, r.get::<BString>()?)))?;
    let mut spec = read(ctx).await?;
    spec.state = state;
    spec.state_description = description;
    keys::write(ctx, KEY, &spec).await
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(read(ctx).await?.to_bytes())
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<(), Errno> {
    keys::remove(ctx, KEY).await?;
    match keys::find::<u64>(ctx, b"features").await? {
        None => {
            if !old_format::is_migrating(ctx).await? {
                return Err(Errno::EINVAL);
            }
            ctx.write(0, without_end(TEXT)).await
        }
        Some(features) if features & MIGRATING != 0 => {
            keys::write(ctx, b"features", &(features & !MIGRATING)).await
        }
        Some(_) => Ok(()),
    }
}
