//! Class `otp`: one-time passwords of a gateway's users, by time (`src/cls/otp/` at v16.2).
//!
//! A check is a write that says nothing, so that a failed one counts; its result is asked for
//! afterwards, by a word of the caller's.
//!
//! ```text
//! header      ids
//! otp/ID      a password's parameters, its last checks, the last step that was used
//! ```

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use ring::hmac;
use types::{Errno, UTime};

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

const HEADER_KEY: &[u8] = b"header";
const KEY_PREFIX: &[u8] = b"otp/";
/// Checks in the time of one step.
const ATTEMPTS_MAX: usize = 5;
const SEED_BASE32: u8 = 2;
/// Steps to both sides that are looked at, whatever was asked for.
const WINDOW_MAX: u32 = 1000;

/// A password's parameters. Wire: rados::cls::otp::otp_info_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OtpInfo {
    /// 2: by time, whatever is said.
    pub kind: u8,
    /// Its name.
    pub id: BString,
    /// The secret, as text.
    pub seed: BString,
    /// 2 for base 32, hexadecimal else.
    pub seed_type: u8,
    /// The secret; made of the text.
    pub seed_bin: Bytes,
    /// Where steps begin, in seconds since 1970.
    pub time_ofs: i32,
    /// Seconds a password is good for.
    pub step_size: u32,
    /// Steps to both sides whose password is good, too.
    pub window: u32,
}

/// A check. Wire: rados::cls::otp::otp_check_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OtpCheck {
    /// The caller's word.
    pub token: BString,
    /// When.
    pub timestamp: UTime,
    /// 0 unknown, 1 good, 2 failed.
    pub result: u8,
}

/// Argument of `otp_set`, and reply of `otp_get`. Wire: cls_otp_set_otp_op and
/// cls_otp_get_otp_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OtpEntries {
    /// The passwords.
    pub entries: Vec<OtpInfo>,
}

/// Argument of `otp_get`. Wire: cls_otp_get_otp_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetOp {
    /// Whether all.
    pub get_all: bool,
    /// Which else.
    pub ids: Vec<BString>,
}

/// Argument of `otp_remove`. Wire: cls_otp_remove_otp_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RemoveOp {
    /// Which.
    pub ids: Vec<BString>,
}

/// Argument of `otp_check` and `otp_get_result`. Wire: cls_otp_check_otp_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CheckOp {
    /// Which password.
    pub id: BString,
    /// What it is said to be.
    pub value: BString,
    /// The caller's word.
    pub token: BString,
}

/// Reply of `otp_get_result`. Wire: cls_otp_get_result_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetResultReply {
    /// The check.
    pub result: OtpCheck,
}

/// Argument of `get_current_time`. Wire: cls_otp_get_current_time_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetCurrentTimeOp {}

/// Reply of `get_current_time`. Wire: cls_otp_get_current_time_reply v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetCurrentTimeReply {
    /// The OSD's.
    pub time: UTime,
}

/// Wire: otp_header v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
struct Header {
    ids: BTreeSet<BString>,
}

/// Wire: otp_instance v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
struct Instance {
    otp: OtpInfo,
    last_checks: VecDeque<OtpCheck>,
    last_success: u64,
}

/// The class.
pub const CLASS: Class = Class {
    name: "otp",
    methods: &[
        method!("otp_set", Flags::RD_WR, set),
        method!("otp_get", Flags::RD, get),
        method!("otp_check", Flags::RD_WR, check),
        method!("otp_get_result", Flags::RD, get_result),
        method!("otp_remove", Flags::RD_WR, remove),
        method!("get_current_time", Flags::RD, get_current_time),
    ],
    filters: &[],
};

impl Instance {
    /// Forgets checks that are older than a step.
    fn trim(&mut self, now: UTime) {
        let start = now.minus(Duration::from_secs(self.otp.step_size.into()));
        while self.last_checks.pop_front_if(|check| check.timestamp < start).is_some() {}
    }

    /// Whether a password is good now, and was not used; the step counts as used then.
    fn verify(&mut self, now: UTime, value: &[u8]) -> bool {
        let otp = &self.otp;
        let Some(since) = i64::from(now.sec).checked_sub(otp.time_ofs.into()) else { return false };
        // One that begins later has no steps yet, and steps have a length.
        let Ok(since) = u64::try_from(since) else { return false };
        let Some(step) = since.checked_div(otp.step_size.into()) else { return false };
        let is_at = |step: Option<u64>| {
            step.and_then(|step| password(&otp.seed_bin, step, value.len()))
                .is_some_and(|password| password == value)
        };
        let distance = (0..=u64::from(otp.window.min(WINDOW_MAX)))
            .find(|n| is_at(step.checked_add(*n)) || is_at(step.checked_sub(*n)));
        // One of an earlier step counts as one as far ahead, as in Ceph.
        match distance.map(|n| step + n) {
            Some(used) if used > self.last_success => {
                self.last_success = used;
                true
            }
            _ => false,
        }
    }
}

/// The password of a step (RFC 4226), of 6 to 8 digits.
fn password(secret: &[u8], step: u64, digits: usize) -> Option<Vec<u8>> {
    if !(6..=8).contains(&digits) {
        return None;
    }
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag.last()? & 0xf);
    let number = u32::from_be_bytes(tag.get(at..at + 4)?.try_into().ok()?) & 0x7fff_ffff;
    let number = u64::from(number) % 10u64.pow(digits as u32);
    Some(format!("{number:0digits$}").into_bytes())
}

/// As liboath reads it: either case, blanks left out, padding complete or not, up to lengths that
/// could be those of a text.
fn base32(text: &[u8]) -> Option<Bytes> {
    let text: Vec<u8> = text.iter().filter(|byte| **byte != b' ').copied().collect();
    let len = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (tail_len, padding_len) = (len % 8, text.len() - len);
    let is_whole = match tail_len {
        0 => padding_len == 0,
        2 | 4 | 5 | 7 => matches!(tail_len + padding_len, 2 | 4 | 5 | 7 | 8),
        _ => false,
    };
    if !is_whole {
        return None;
    }
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for byte in &text[..len] {
        let digit = match byte.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u32::from(digit);
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes.into())
}

fn hex(text: &[u8]) -> Option<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().map(Bytes::from)
}

fn key(id: &[u8]) -> BString {
    [KEY_PREFIX, id].concat().into()
}

async fn load_header(ctx: &mut dyn ObjectContext) -> Result<Header, Errno> {
    match ctx.omap_val(HEADER_KEY).await {
        Err(Errno::ENOENT | Errno::ENODATA) => Ok(Header::default()),
        Ok(bytes) if bytes.is_empty() => Ok(Header::default()),
        other => stored(&other?),
    }
}

async fn load(ctx: &mut dyn ObjectContext, id: &[u8]) -> Result<Instance, Errno> {
    stored(&ctx.omap_val(&key(id)).await?)
}

async fn store(ctx: &mut dyn ObjectContext, instance: &Instance) -> Result<(), Errno> {
    ctx.omap_set(BTreeMap::from([(key(&instance.otp.id), instance.to_bytes())])).await
}

async fn store_header(ctx: &mut dyn ObjectContext, header: &Header) -> Result<(), Errno> {
    ctx.omap_set(BTreeMap::from([(HEADER_KEY.into(), header.to_bytes())])).await
}

async fn set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: OtpEntries = argument(input)?;
    let mut header = load_header(ctx).await?;
    for otp in op.entries {
        let mut instance = match load(ctx, &otp.id).await {
            Err(Errno::ENOENT) => Instance::default(),
            other => other?,
        };
        let seed = if otp.seed_type == SEED_BASE32 { base32(&otp.seed) } else { hex(&otp.seed) };
        instance.otp = OtpInfo { seed_bin: seed.ok_or(Errno::EINVAL)?, ..otp };
        store(ctx, &instance).await?;
        header.ids.insert(instance.otp.id);
    }
    store_header(ctx, &header).await
}

async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RemoveOp = argument(input)?;
    let mut header = load_header(ctx).await?;
    let count = header.ids.len();
    for id in &op.ids {
        if header.ids.remove(id) {
            ctx.omap_rm(&key(id)).await?;
        }
    }
    if header.ids.len() == count { Ok(()) } else { store_header(ctx, &header).await }
}

async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: GetOp = argument(input)?;
    let header = load_header(ctx).await?;
    let ids = if op.get_all { header.ids.iter().cloned().collect() } else { op.ids };
    let mut reply = OtpEntries::default();
    for id in ids.iter().filter(|id| header.ids.contains(*id)) {
        reply.entries.push(load(ctx, id).await?.otp);
    }
    Ok(reply.to_bytes())
}

async fn check(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CheckOp = argument(input)?;
    let mut instance = load(ctx, &op.id).await?;
    let timestamp = ctx.now();
    instance.trim(timestamp);
    if instance.last_checks.len() >= ATTEMPTS_MAX {
        return Ok(());
    }
    let result = if instance.verify(timestamp, &op.value) { 1 } else { 2 };
    instance.last_checks.push_back(OtpCheck { token: op.token, timestamp, result });
    store(ctx, &instance).await
}

async fn get_result(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: CheckOp = argument(input)?;
    let mut instance = load(ctx, &op.id).await?;
    let now = ctx.now();
    instance.trim(now);
    let found = instance.last_checks.into_iter().rev().find(|check| check.token == op.token);
    let unknown = OtpCheck { token: op.token, timestamp: now, result: 0 };
    Ok(GetResultReply { result: found.unwrap_or(unknown) }.to_bytes())
}

async fn get_current_time(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let GetCurrentTimeOp {} = argument(input)?;
    Ok(GetCurrentTimeReply { time: ctx.now() }.to_bytes())
}
