//! Compares what the OSDs of a PG have of a range: which copy of each object is to be trusted,
//! which are not right and why (`be_select_auth_object`, `be_compare_scrub_objects`,
//! `be_compare_scrubmaps` in `src/osd/PGBackend.cc` at v16.2). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bstr::BStr;
use denc::Denc;
use types::osd::scrub_errors::{InconsistentObject, ShardReport, object_error, shard_error};
use types::osd::{EcHashInfo, ObjectInfo, ScrubMap, ScrubObject, SnapSet};
use types::{EVersion, HObject, PgShard, SpgId, UTime};

use crate::ec::hash_info::HINFO_KEY;
use crate::ops::digests::Digests;
use crate::ops::object_context::{OI_ATTR, SS_ATTR, USER_ATTR_PREFIX};

/// What each OSD found, in order.
pub type Maps = BTreeMap<PgShard, ScrubMap>;

/// How to compare.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The PG.
    pub pgid: SpgId,
    /// The primary: its copy is trusted first, all else being equal.
    pub primary: PgShard,
    /// Whether what is found is to be repaired.
    pub repair: bool,
    /// osd_max_object_size.
    pub object_size_max: u64,
    /// Objects not changed for so many seconds get their digests recorded
    /// (osd_deep_scrub_update_digest_min_age).
    pub digest_min_age_sec: u64,
    /// Now.
    pub now: UTime,
    /// Bytes of a stripe, and of its piece in each shard; `None` in a replicated pool.
    pub stripe: Option<(u64, u64)>,
}

impl Rules {
    /// Bytes that each copy of an object of so many has (`be_get_ondisk_size`).
    pub(super) fn stored_size(&self, size: u64) -> u64 {
        match self.stripe {
            Some((width, piece)) => size.div_ceil(width) * piece,
            None => size,
        }
    }
}

/// A copy that can be trusted, and what its info says.
#[derive(Debug, Clone)]
pub struct Good {
    /// Who has it, best last.
    pub shards: Vec<PgShard>,
    /// The chosen version of the object.
    pub version: EVersion,
}

/// What comes of a comparison.
#[derive(Debug, Default)]
pub struct Findings {
    /// Copies that are not there.
    pub missing: BTreeMap<HObject, BTreeSet<PgShard>>,
    /// Copies that are wrong.
    pub inconsistent: BTreeMap<HObject, BTreeSet<PgShard>>,
    /// For the objects of both: who has a good copy.
    pub good: BTreeMap<HObject, Good>,
    /// Digests to record in object infos: (data, omap).
    pub digests: BTreeMap<HObject, Digests>,
    /// Errors any scrub finds.
    pub shallow_errors: u32,
    /// Errors deep scrub finds.
    pub deep_errors: u32,
    /// What to keep for `list-inconsistent-obj`.
    pub objects: Vec<(HObject, InconsistentObject)>,
    /// Lines for the cluster log.
    pub log: Vec<String>,
}

/// The object info of an object as its copies agree on it.
struct Chosen {
    shard: PgShard,
    oi: ObjectInfo,
}

/// A list of reasons, separated by commas.
#[derive(Default)]
struct Reasons(String);

impl Reasons {
    fn add(&mut self, reason: impl std::fmt::Display) {
        if !self.0.is_empty() {
            self.0 += ", ";
        }
        let _ = write!(self.0, "{reason}");
    }

    fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Compares the copies of all objects.
pub fn compare(maps: &Maps, rules: &Rules) -> Findings {
    let mut findings = Findings::default();
    let all: BTreeSet<&HObject> = maps.values().flat_map(|map| map.objects.keys()).collect();
    for oid in all {
        compare_object(oid, maps, rules, &mut findings);
    }
    findings
}

/// An object info as the cluster log shows it.
pub fn info_text(oi: &ObjectInfo) -> String {
    let mut text = format!(
        "{}({} {} {} s {} uv {}",
        oi.soid,
        oi.version,
        oi.last_reqid,
        oi.flag_names().join("|"),
        oi.size,
        oi.user_version
    );
    if oi.is_data_digest() {
        let _ = write!(text, " dd {:x}", oi.data_digest);
    }
    if oi.is_omap_digest() {
        let _ = write!(text, " od {:x}", oi.omap_digest);
    }
    let _ = write!(
        text,
        " alloc_hint [{} {} {}])",
        oi.expected_object_size, oi.expected_write_size, oi.alloc_hint_flags
    );
    text
}

fn digests_known(oi: &ObjectInfo) -> u32 {
    u32::from(oi.is_data_digest()) + u32::from(oi.is_omap_digest())
}

/// What is wrong with a copy by itself; its object info if that can be read.
fn judge(oid: &HObject, object: &ScrubObject, rules: &Rules) -> (u64, Option<ObjectInfo>, Reasons) {
    use shard_error as e;
    let mut errors = 0;
    let mut reasons = Reasons::default();
    let mut fail = |bit: u64, reason: &str| {
        errors |= bit;
        reasons.add(reason);
    };
    if object.read_error {
        fail(e::READ_ERROR, "candidate had a read error");
    }
    if object.ec_hash_mismatch {
        fail(e::EC_HASH_MISMATCH, "candidate had an ec hash mismatch");
    }
    if object.ec_size_mismatch {
        fail(e::EC_SIZE_MISMATCH, "candidate had an ec size mismatch");
    }
    if object.stat_error {
        fail(e::STAT_ERROR, "candidate had a stat error");
        return (errors, None, reasons);
    }
    if oid.is_head() {
        match object.attrs.get(BStr::new(SS_ATTR)) {
            None => fail(e::SNAPSET_MISSING, "candidate had a missing snapset key"),
            Some(bytes) if SnapSet::from_bytes(bytes).is_err() => {
                fail(e::SNAPSET_CORRUPTED, "candidate had a corrupt snapset");
            }
            Some(_) => {}
        }
    }
    if rules.stripe.is_some() {
        match object.attrs.get(BStr::new(HINFO_KEY)) {
            None => fail(e::HINFO_MISSING, "candidate had a missing hinfo key"),
            Some(bytes) if EcHashInfo::from_bytes(bytes).is_err() => {
                fail(e::HINFO_CORRUPTED, "candidate had a corrupt hinfo");
            }
            Some(_) => {}
        }
    }
    let Some(bytes) = object.attrs.get(BStr::new(OI_ATTR)) else {
        fail(e::INFO_MISSING, "candidate had a missing info key");
        return (errors, None, reasons);
    };
    let oi = match ObjectInfo::from_bytes(bytes) {
        Ok(oi) if oi.soid == *oid => oi,
        _ => {
            fail(e::INFO_CORRUPTED, "candidate had a corrupt info");
            return (errors, None, reasons);
        }
    };
    let expected = rules.stored_size(oi.size);
    if object.size != expected {
        let text = format!("candidate size {} info size {expected} mismatch", object.size);
        fail(e::OBJ_SIZE_INFO_MISMATCH, &text);
    }
    (errors, Some(oi), reasons)
}

/// Picks the copy whose object info all are compared with: one without errors of its own, of the
/// newest version, the primary's first. Also whether all contents read are the same.
fn choose(
    oid: &HObject,
    maps: &Maps,
    rules: &Rules,
    reports: &mut BTreeMap<PgShard, ShardReport>,
    log: &mut Vec<String>,
) -> (Option<Chosen>, bool) {
    let others = maps.keys().copied().filter(|s| *s != rules.primary);
    let mut chosen: Option<Chosen> = None;
    let mut digests_match = true;
    for shard in std::iter::once(rules.primary).chain(others) {
        let Some(object) = maps.get(&shard).and_then(|map| map.objects.get(oid)) else { continue };
        let (errors, oi, reasons) = judge(oid, object, rules);
        let report = reports.entry(shard).or_default();
        report.primary = shard == rules.primary;
        report.errors |= errors;
        if reasons.any() {
            let pgid = rules.pgid.pgid;
            log.push(format!("{pgid} shard {shard} soid {oid} : {}", reasons.0));
        }
        let Some(oi) = oi else { continue };
        if let Some(best) = &chosen
            && let Some(other) = maps.get(&best.shard).and_then(|map| map.objects.get(oid))
            && other.digest_present
            && object.digest_present
            && other.digest != object.digest
        {
            digests_match = false;
        }
        if errors != 0 {
            continue;
        }
        let better = chosen.as_ref().is_none_or(|best| {
            (oi.version, digests_known(&oi)) > (best.oi.version, digests_known(&best.oi))
        });
        if better {
            chosen = Some(Chosen { shard, oi });
        }
    }
    (chosen, digests_match)
}

/// Compares a copy with the chosen one; what differs goes into `report` (this copy's fault) or
/// `errors` (nobody knows whose).
fn compare_copies(
    oid: &HObject,
    chosen: &Chosen,
    good: &ScrubObject,
    copy: &ScrubObject,
    rules: &Rules,
    report: &mut ShardReport,
    errors: &mut u64,
) -> Reasons {
    let mut reasons = Reasons::default();
    let (shard, oi) = (chosen.shard, &chosen.oi);
    if good.digest_present && copy.digest_present && good.digest != copy.digest {
        let (found, wanted) = (copy.digest, good.digest);
        reasons.add(format_args!(
            "data_digest {found:#x} != data_digest {wanted:#x} from shard {shard}"
        ));
        *errors |= object_error::DATA_DIGEST_MISMATCH;
    }
    if good.omap_digest_present && copy.omap_digest_present && good.omap_digest != copy.omap_digest
    {
        let (found, wanted) = (copy.omap_digest, good.omap_digest);
        reasons.add(format_args!(
            "omap_digest {found:#x} != omap_digest {wanted:#x} from shard {shard}"
        ));
        *errors |= object_error::OMAP_DIGEST_MISMATCH;
    }
    // The digest of a shard is not that of the object.
    let is_whole = rules.stripe.is_none();
    if is_whole && oi.is_data_digest() && copy.digest_present && oi.data_digest != copy.digest {
        reasons.add(format_args!(
            "data_digest {:#x} != data_digest {:#x} from auth oi {}",
            copy.digest,
            oi.data_digest,
            info_text(oi)
        ));
        report.errors |= shard_error::DATA_DIGEST_MISMATCH_INFO;
    }
    if is_whole
        && oi.is_omap_digest()
        && copy.omap_digest_present
        && oi.omap_digest != copy.omap_digest
    {
        reasons.add(format_args!(
            "omap_digest {:#x} != omap_digest {:#x} from auth oi {}",
            copy.omap_digest,
            oi.omap_digest,
            info_text(oi)
        ));
        report.errors |= shard_error::OMAP_DIGEST_MISMATCH_INFO;
    }
    if copy.stat_error {
        return reasons;
    }
    let attr = |object: &ScrubObject, name: &[u8]| object.attrs.get(BStr::new(name)).cloned();
    if !report.has(shard_error::INFO_MISSING | shard_error::INFO_CORRUPTED)
        && attr(copy, OI_ATTR) != attr(good, OI_ATTR)
    {
        reasons.add("object info inconsistent ");
        *errors |= object_error::INFO_INCONSISTENCY;
    }
    if oid.is_head()
        && !report.has(shard_error::SNAPSET_MISSING | shard_error::SNAPSET_CORRUPTED)
        && attr(copy, SS_ATTR) != attr(good, SS_ATTR)
    {
        reasons.add("snapset inconsistent ");
        *errors |= object_error::SNAPSET_INCONSISTENCY;
    }
    if !is_whole
        && !report.has(shard_error::HINFO_MISSING | shard_error::HINFO_CORRUPTED)
        && attr(copy, HINFO_KEY) != attr(good, HINFO_KEY)
    {
        reasons.add("hinfo inconsistent ");
        *errors |= object_error::HINFO_INCONSISTENCY;
    }
    let expected = rules.stored_size(oi.size);
    if copy.size != expected {
        let text = info_text(oi);
        reasons.add(format_args!("size {} != size {expected} from auth oi {text}", copy.size));
        report.errors |= shard_error::SIZE_MISMATCH_INFO;
    }
    if copy.size != good.size {
        let (found, wanted) = (copy.size, good.size);
        reasons.add(format_args!("size {found} != size {wanted} from shard {shard}"));
        *errors |= object_error::SIZE_MISMATCH;
    }
    if copy.size > rules.object_size_max && *errors & object_error::SIZE_TOO_LARGE == 0 {
        let (found, max) = (copy.size, rules.object_size_max);
        reasons.add(format_args!("size {found} > {max} is too large"));
        *errors |= object_error::SIZE_TOO_LARGE;
    }
    let is_users = |name: &[u8]| name.first() == Some(&USER_ATTR_PREFIX) && name != OI_ATTR;
    for (name, value) in good.attrs.iter().filter(|(name, _)| is_users(name)) {
        match copy.attrs.get(name) {
            None => {
                reasons.add(format_args!("attr name mismatch '{name}'"));
                *errors |= object_error::ATTR_NAME_MISMATCH;
            }
            Some(other) if other != value => {
                reasons.add(format_args!("attr value mismatch '{name}'"));
                *errors |= object_error::ATTR_VALUE_MISMATCH;
            }
            Some(_) => {}
        }
    }
    for name in copy.attrs.keys().filter(|name| is_users(name)) {
        if !good.attrs.contains_key(name) {
            reasons.add(format_args!("attr name mismatch '{name}'"));
            *errors |= object_error::ATTR_NAME_MISMATCH;
        }
    }
    reasons
}

/// Adds an object's errors to the counts: once for a copy or an object, deep before shallow.
fn count(deep: bool, shallow: bool, findings: &mut Findings) {
    if deep {
        findings.deep_errors += 1;
    } else if shallow {
        findings.shallow_errors += 1;
    }
}

fn compare_object(oid: &HObject, maps: &Maps, rules: &Rules, findings: &mut Findings) {
    let pgid = rules.pgid.pgid;
    let mut reports: BTreeMap<PgShard, ShardReport> = BTreeMap::new();
    let (chosen, digests_match) = choose(oid, maps, rules, &mut reports, &mut findings.log);
    let mut told = InconsistentObject { object: oid.into(), ..InconsistentObject::default() };
    let Some(chosen) = chosen else {
        for (shard, map) in maps {
            let mut report = reports.remove(shard).unwrap_or_default();
            report.primary = *shard == rules.primary;
            match map.objects.get(oid) {
                Some(object) => report.describe(object),
                None => report.errors |= shard_error::MISSING,
            }
            count(report.has(shard_error::DEEP), report.has(shard_error::SHALLOW), findings);
            told.add(*shard, report);
        }
        findings.objects.push((oid.clone(), told));
        findings.log.push(format!("{pgid} soid {oid} : failed to pick suitable object info"));
        return;
    };
    let Some(good) = maps.get(&chosen.shard).and_then(|map| map.objects.get(oid)) else { return };
    told.version = chosen.oi.user_version;
    let mut trusted: Vec<PgShard> = Vec::new();
    let (mut absent, mut wrong, mut doubtful) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut fix_digest = false;
    let copies = reports.len();
    for (&shard, map) in maps {
        let mut report = reports.remove(&shard).unwrap_or_default();
        report.primary = shard == rules.primary;
        report.selected_oi = shard == chosen.shard;
        let Some(copy) = map.objects.get(oid) else {
            absent.insert(shard);
            report.errors |= shard_error::MISSING;
            findings.shallow_errors += 1;
            findings.log.push(format!("{pgid} shard {shard} {oid} : missing"));
            told.add(shard, report);
            continue;
        };
        report.describe(copy);
        let reasons =
            compare_copies(oid, &chosen, good, copy, rules, &mut report, &mut told.errors);
        // All copies agree and only the recorded digest differs: the record is wrong.
        if rules.repair
            && rules.stripe.is_none()
            && shard == chosen.shard
            && copies > 1
            && digests_match
            && report.errors == shard_error::DATA_DIGEST_MISMATCH_INFO
            && good.digest_present
        {
            fix_digest = true;
            report.errors = 0;
            findings.log.push(format!("{pgid} soid {oid} : repairing object info data_digest"));
        }
        if report.errors != 0 {
            wrong.insert(shard);
            count(report.has(shard_error::DEEP), true, findings);
            if reasons.any() {
                findings.log.push(format!("{pgid} shard {shard} soid {oid} : {}", reasons.0));
            }
        } else if reasons.any() {
            doubtful.insert(shard);
            findings.log.push(format!("{pgid} soid {oid} : {}", reasons.0));
        } else {
            trusted.push(shard);
        }
        told.add(shard, report);
    }
    if trusted.is_empty() {
        let pick = match doubtful.contains(&chosen.shard) {
            true => Some(chosen.shard),
            false => doubtful.first().copied(),
        };
        match pick {
            Some(shard) => {
                doubtful.remove(&shard);
                trusted.push(shard);
            }
            None => {
                let text = format!("{pgid} soid {oid} : failed to pick suitable auth object");
                findings.log.push(text);
            }
        }
    }
    if !trusted.is_empty() {
        wrong.extend(doubtful);
        let any = !wrong.is_empty() || !absent.is_empty();
        if !absent.is_empty() {
            findings.missing.insert(oid.clone(), absent);
        }
        if !wrong.is_empty() {
            findings.inconsistent.insert(oid.clone(), wrong);
        }
        if any {
            let version = chosen.oi.version;
            findings.good.insert(oid.clone(), Good { shards: trusted, version });
        }
        note_digests(oid, &chosen.oi, good, fix_digest, any, rules, findings);
    }
    let deep = told.errors & object_error::DEEP != 0;
    count(deep, told.errors & object_error::SHALLOW != 0, findings);
    if told.errors != 0 || told.union_errors != 0 {
        findings.objects.push((oid.clone(), told));
    }
}

/// Digests that a deep scrub took and the object info lacks are recorded, once the object has
/// been left alone for a while; what a repair shows to be wrongly recorded is recorded anew.
fn note_digests(
    oid: &HObject,
    oi: &ObjectInfo,
    good: &ScrubObject,
    fix_digest: bool,
    damaged: bool,
    rules: &Rules,
    findings: &mut Findings,
) {
    let data = good.digest_present.then_some(good.digest);
    let omap = good.omap_digest_present.then_some(good.omap_digest);
    let digests = Digests { version: oi.version, data, omap };
    if fix_digest {
        findings.digests.insert(oid.clone(), digests);
        return;
    }
    if damaged || rules.stripe.is_some() {
        return;
    }
    let lacks =
        (data.is_some() && !oi.is_data_digest()) || (omap.is_some() && !oi.is_omap_digest());
    if !lacks {
        return;
    }
    let age = rules.now.to_duration().saturating_sub(oi.local_mtime.to_duration());
    if age.as_secs() > rules.digest_min_age_sec {
        findings.digests.insert(oid.clone(), digests);
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
