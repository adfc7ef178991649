//! `crash ...`: reports of daemons that crashed, as `ceph-crash` posts them, kept in the monitors'
//! config-key store under Ceph's keys (`src/pybind/mgr/crash/module.py` at v16.2).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use command::{Align, CommandMap, CommandReply, TextTable};
use maps::{HealthCheckMap, Severity};
use ring::digest;
use serde_json::Value;
use types::UTime;

use super::EINVAL;
use crate::daemon::Mgr;
use crate::json;

/// Where reports are kept.
const PREFIX: &str = "mgr/crash/crash/";
/// Reports kept at most; the oldest go first.
const REPORTS_MAX: usize = 1000;
/// Longest report taken.
const REPORT_LEN_MAX: usize = 1 << 20;
const DAY: u64 = 86400;

/// Reports by id.
pub(crate) type Reports = BTreeMap<String, Value>;

/// Reads the reports of all daemons.
pub(crate) async fn load(mgr: &Mgr) -> Result<(), CommandReply> {
    let command = serde_json::json!({"prefix": "config-key dump", "key": PREFIX, "format": "json"});
    let dump = mgr.at_monitors(&command, Bytes::new()).await?;
    let dump: BTreeMap<String, String> = serde_json::from_slice(&dump).unwrap_or_default();
    *mgr.crashes.borrow_mut() = stored(dump);
    Ok(())
}

/// The reports among what is kept, where anybody may write.
fn stored(dump: BTreeMap<String, String>) -> Reports {
    let report = |(key, text): (String, String)| {
        let id = key.strip_prefix(PREFIX)?;
        match serde_json::from_str::<Value>(&text).ok().filter(Value::is_object) {
            Some(report) => Some((id.to_owned(), report)),
            None => {
                tracing::warn!("{key} is no report of a crash: left out");
                None
            }
        }
    };
    dump.into_iter().filter_map(report).collect()
}

async fn keep(mgr: &Mgr, id: &str, report: Value) -> Result<(), CommandReply> {
    let key = format!("{PREFIX}{id}");
    let command = serde_json::json!({"prefix": "config-key set", "key": key});
    mgr.at_monitors(&command, Bytes::from(report.to_string())).await?;
    mgr.crashes.borrow_mut().insert(id.to_owned(), report);
    Ok(())
}

async fn remove(mgr: &Mgr, id: &str) -> Result<(), CommandReply> {
    let command = serde_json::json!({"prefix": "config-key rm", "key": format!("{PREFIX}{id}")});
    mgr.at_monitors(&command, Bytes::new()).await?;
    mgr.crashes.borrow_mut().remove(id);
    Ok(())
}

fn field<'a>(report: &'a Value, name: &str) -> &'a str {
    report[name].as_str().unwrap_or_default()
}

/// What stands for what a report does not tell.
fn field_or<'a>(report: &'a Value, name: &str, otherwise: &'a str) -> &'a str {
    report[name].as_str().unwrap_or(otherwise)
}

fn is_new(report: &Value) -> bool {
    report.get("archived").is_none()
}

/// Days since the crash, by its time `2021-03-04T05:06:07.123456Z`.
fn age(report: &Value, now: UTime) -> Option<Duration> {
    Some(now.since(time_of(field(report, "timestamp"))?))
}

/// Indented by 4, as modules in Python answer.
fn indented(value: &Value) -> String {
    let by_two = serde_json::to_string_pretty(value).unwrap_or_default();
    let twice = |line: &str| {
        let depth = line.len() - line.trim_start_matches(' ').len();
        format!("{}{line}", " ".repeat(depth))
    };
    by_two.lines().map(twice).collect::<Vec<_>>().join("\n")
}

/// Reads `2021-03-04T05:06:07.123456Z` (before 16.2 with a blank for the T).
fn time_of(text: &str) -> Option<UTime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u32>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fits = (1970..2106).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !fits || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970-01-01, by years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = y / 4 - y / 100 + y / 400;
    let days = (365 * y + leaps + (153 * m + 2) / 5 + day).checked_sub(719_469)?;
    let sec = days.checked_mul(86400)?.checked_add(hour * 3600 + minute * 60 + second)?;
    Some(UTime { sec, nsec: 0 })
}

fn ls(mgr: &Mgr, map: &CommandMap, only_new: bool) -> CommandReply {
    let reports = mgr.crashes.borrow();
    let shown = reports.iter().filter(|(_, report)| !only_new || is_new(report));
    if !map.format().is_plain() {
        let all: Vec<&Value> = shown.map(|(_, report)| report).collect();
        let all = all.into_iter().cloned().collect();
        return CommandReply::data(json::indented(&Value::Array(all)));
    }
    let mut table = TextTable::new();
    for heading in ["ID", "ENTITY", "NEW"] {
        table.define_column(heading, Align::Left, Align::Left);
    }
    let mut any = false;
    for (id, report) in shown {
        any = true;
        let new = if is_new(report) { "*" } else { "" };
        table.row([
            id.clone(),
            field_or(report, "entity_name", "unknown").to_owned(),
            format!(" {new}"),
        ]);
    }
    CommandReply::data(if any { table.to_string() } else { String::new() })
}

/// The numbers of the module's refusals are positive.
fn refused(why: impl Into<String>) -> CommandReply {
    CommandReply { rc: EINVAL, outs: why.into(), outb: Bytes::new() }
}

fn not_found(id: &str) -> CommandReply {
    refused(format!("crash info: {id} not found"))
}

/// What crashes of one cause have in common: the functions of the stack, and what a failed assertion
/// says without thread, time and line.
fn stack_signature(report: &Value) -> Option<String> {
    let mut sig = digest::Context::new(&digest::SHA256);
    for frame in report.get("backtrace")?.as_array().into_iter().flatten() {
        sig.update(function_of(frame.as_str().unwrap_or_default()).as_bytes());
    }
    if let Some([before, after]) = lasting(field(report, "assert_msg")) {
        sig.update(before.as_bytes());
        sig.update(after.as_bytes());
    }
    Some(sig.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `f()` of `(f()+0x10) [0x7f00]`.
fn function_of(frame: &str) -> &str {
    let place = frame.rsplit_once(' ').map_or(frame, |(place, _)| place);
    let mut chars = place.chars();
    chars.next();
    chars.next_back();
    let inner = chars.as_str();
    inner.split_once('+').map_or(inner, |(function, _)| function)
}

/// Of `FILE: In function F thread T time TIME\nFILE: LINE: WHAT\n` what is before the thread and after
/// the line.
fn lasting(message: &str) -> Option<[&str; 2]> {
    let message = &message[..message.rfind('\n')?];
    let colon = message.rfind(": ")?;
    let time = message[..colon].rfind(" time ")?;
    let thread = message[..time].rfind(" thread ")?;
    Some([&message[..thread], &message[colon..]])
}

async fn post(mgr: &Mgr, input: &Bytes) -> CommandReply {
    let malformed = |why: &str| refused(format!("malformed crash metadata: {why}"));
    if input.len() > REPORT_LEN_MAX {
        return malformed("too long");
    }
    let Ok(mut report) = serde_json::from_slice::<Value>(input) else {
        return malformed("not JSON");
    };
    let id = field(&report, "crash_id").to_owned();
    if id.is_empty() || time_of(field(&report, "timestamp")).is_none() {
        return malformed("crash_id and timestamp are needed");
    }
    if let Some(signature) = stack_signature(&report) {
        report["stack_sig"] = signature.into();
    }
    if mgr.crashes.borrow().contains_key(&id) {
        return CommandReply::default();
    }
    let oldest = {
        let reports = mgr.crashes.borrow();
        let oldest = reports.iter().min_by_key(|(_, report)| field(report, "timestamp").to_owned());
        oldest.filter(|_| reports.len() >= REPORTS_MAX).map(|(id, _)| id.clone())
    };
    if let Some(oldest) = oldest
        && let Err(reply) = remove(mgr, &oldest).await
    {
        return reply;
    }
    keep(mgr, &id, report).await.err().unwrap_or_default()
}

async fn archive(mgr: &Mgr, wanted: Option<&str>) -> CommandReply {
    let now = UTime::from_duration(mgr.env.wall_clock()).gmtime_nat().to_string();
    let chosen: Vec<(String, Value)> = {
        let reports = mgr.crashes.borrow();
        let matches = |id: &str| wanted.is_none_or(|wanted| wanted == id);
        let new = reports.iter().filter(|(id, report)| matches(id) && is_new(report));
        new.map(|(id, report)| (id.clone(), report.clone())).collect()
    };
    for (id, mut report) in chosen {
        report["archived"] = Value::String(now.clone());
        if let Err(reply) = keep(mgr, &id, report).await {
            return reply;
        }
    }
    CommandReply::default()
}

/// Reports of crashes so many days ago, and before. Less than none: also of those that a clock
/// ahead of ours has yet to come.
fn older_than(reports: &Reports, days: i64, now: UTime) -> Vec<String> {
    let limit = i64::from(now.sec).saturating_sub(days.saturating_mul(DAY as i64));
    let old = |report: &Value| {
        time_of(field(report, "timestamp")).is_some_and(|at| i64::from(at.sec) <= limit)
    };
    reports.iter().filter(|(_, report)| old(report)).map(|(id, _)| id.clone()).collect()
}

async fn prune(mgr: &Mgr, keep_days: &str) -> CommandReply {
    let Ok(days) = keep_days.parse::<i64>() else {
        return refused("keep argument must be integer");
    };
    let now = UTime::from_duration(mgr.env.wall_clock());
    let old = older_than(&mgr.crashes.borrow(), days, now);
    for id in old {
        if let Err(reply) = remove(mgr, &id).await {
            return reply;
        }
    }
    CommandReply::default()
}

fn stat(mgr: &Mgr) -> CommandReply {
    let reports = mgr.crashes.borrow();
    let now = UTime::from_duration(mgr.env.wall_clock());
    let mut out = format!("{} crashes recorded\n", reports.len());
    for days in [1, 3, 7] {
        let limit = Duration::from_secs(days * DAY);
        let older: Vec<&str> = reports
            .iter()
            .filter(|(_, report)| age(report, now).is_some_and(|age| age > limit))
            .map(|(id, _)| id.as_str())
            .collect();
        if !older.is_empty() {
            out += &format!("{} older than {days} days old:\n{}\n", older.len(), older.join("\n"));
        }
    }
    CommandReply::data(out)
}

/// How often which program has crashed in the last hours. Ceph's module asks for the hours, too, but counts all that it has.
fn by_program(reports: &Reports, hours: i64, now: UTime) -> Value {
    let span = Duration::from_secs(u64::try_from(hours).unwrap_or(0).saturating_mul(3600));
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for report in reports.values().filter(|r| age(r, now).is_some_and(|age| age <= span)) {
        let name = field(report, "process_name");
        *counts.entry(if name.is_empty() { "unknown" } else { name }).or_default() += 1;
    }
    counts.into_iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect()
}

/// The answer is where messages are, as in Ceph.
fn json_report(mgr: &Mgr, hours: &str) -> CommandReply {
    let Ok(hours) = hours.parse::<i64>() else {
        return refused("<hours> argument must be integer");
    };
    let now = UTime::from_duration(mgr.env.wall_clock());
    CommandReply::text(json::compact(&by_program(&mgr.crashes.borrow(), hours, now)))
}

/// Answers the module's commands.
pub(super) async fn run(mgr: &Mgr, map: &CommandMap, input: &Bytes) -> CommandReply {
    if let Err(reply) = load(mgr).await {
        return reply;
    }
    let text = |key: &str| map.opt_string(key).ok().flatten().unwrap_or_default();
    let id = text("id");
    let known = mgr.crashes.borrow().contains_key(&id);
    match map.prefix() {
        "crash ls" => ls(mgr, map, false),
        "crash ls-new" => ls(mgr, map, true),
        "crash stat" => stat(mgr),
        "crash json_report" => json_report(mgr, &text("hours")),
        "crash post" => post(mgr, input).await,
        "crash prune" => prune(mgr, &text("keep")).await,
        "crash archive-all" => archive(mgr, None).await,
        "crash info" | "crash archive" if !known => not_found(&id),
        "crash info" => CommandReply::data(indented(&mgr.crashes.borrow()[&id])),
        "crash archive" => archive(mgr, Some(&id)).await,
        "crash rm" if known => remove(mgr, &id).await.err().unwrap_or_default(),
        _ => CommandReply::default(),
    }
}

/// Crashes no older than `recent` that nobody has archived are a finding.
pub(crate) fn health(reports: &Reports, now: UTime, recent: Duration, checks: &mut HealthCheckMap) {
    const DETAIL_MAX: usize = 30;
    let recent: Vec<&Value> = reports
        .values()
        .filter(|report| is_new(report) && age(report, now).is_some_and(|age| age < recent))
        .collect();
    if recent.is_empty() {
        return;
    }
    // Crashes, whatever the words say.
    let text = format!("{} daemons have recently crashed", recent.len());
    let check = checks.add("RECENT_CRASH", Severity::Warn, text, recent.len() as i64);
    for report in recent.iter().take(DETAIL_MAX) {
        check.detail.push(format!(
            "{} crashed on host {} at {}",
            field_or(report, "entity_name", "unidentified daemon"),
            field_or(report, "utsname_hostname", "(unknown)"),
            field(report, "timestamp")
        ));
    }
    if let Some(more) = recent.len().checked_sub(DETAIL_MAX).filter(|more| *more > 0) {
        check.detail.push(format!("and {more} more"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at: &str) -> Value {
        serde_json::json!({"crash_id": at, "timestamp": at, "entity_name": "osd.1", "utsname_hostname": "h"})
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let at = UTime { sec: 1_795_232_811, nsec: 0 };
        let text = at.gmtime().to_string();
        assert_eq!(time_of(&text), Some(at), "{text}");
        assert_eq!(time_of("1970-01-01T00:00:00.000000Z"), Some(UTime { sec: 0, nsec: 0 }));
        assert_eq!(time_of("2024-02-29 12:00:00.000000Z").map(|t| t.sec), Some(1_709_208_000));
        for bad in
            ["", "2021", "2021-13-01T00:00:00", "abcd-ef-ghTij:kl:mn", "2021-03-04T05:06:\u{e9}7"]
        {
            assert_eq!(time_of(bad), None, "{bad}");
        }
    }

    /// `config-key set mgr/crash/crash/bad '[]'` and `crash archive-all` ended every manager.
    #[test]
    fn what_is_no_report_is_left_out() {
        let kept = ["[]", "\"x\"", "1", "true", "null", "", "{}"].into_iter().enumerate();
        let dump = kept.map(|(n, text)| (format!("{PREFIX}{n}"), text.to_owned())).collect();
        assert_eq!(stored(dump).into_keys().collect::<Vec<_>>(), ["6"]);
    }

    /// `crash prune -1` was refused; Ceph's takes it.
    #[test]
    fn reports_are_pruned_by_their_days() {
        let now = time_of("2026-11-21T07:00:00.000000Z").unwrap();
        let at = |day: &str| (day.to_owned(), report(&format!("2026-11-{day}T07:00:00.000000Z")));
        let reports: Reports = [at("10"), at("20"), at("21"), at("22"), at("24")].into();
        assert_eq!(older_than(&reports, 0, now), ["10", "20", "21"]);
        assert_eq!(older_than(&reports, 1, now), ["10", "20"]);
        assert_eq!(older_than(&reports, -1, now), ["10", "20", "21", "22"]);
        assert!(older_than(&reports, i64::MAX, now).is_empty());
        assert_eq!(older_than(&reports, i64::MIN, now).len(), 5);
    }

    /// `crash json_report` was not there.
    #[test]
    fn crashes_of_the_last_hours_are_counted_by_program() {
        let now = time_of("2026-11-21T07:00:00.000000Z").unwrap();
        let at = |hour: &str, program: &str| {
            let mut report = report(&format!("2026-11-21T{hour}:30:00.000000Z"));
            report["process_name"] = program.into();
            (hour.to_owned(), report)
        };
        let reports: Reports =
            [at("01", "ceph-osd"), at("04", "ceph-osd"), at("05", ""), at("06", "ceph-osd")].into();
        let counts = |hours| json::compact(&by_program(&reports, hours, now));
        assert_eq!(counts(24), r#"{"ceph-osd": 3, "unknown": 1}"#);
        assert_eq!(counts(3), r#"{"ceph-osd": 2, "unknown": 1}"#);
        assert_eq!([counts(0), counts(i64::MIN)], ["{}", "{}"]);
        assert_eq!(counts(i64::MAX), counts(24));
    }

    #[test]
    fn recent_crashes_are_a_finding_until_they_are_archived() {
        let now = time_of("2026-11-21T07:00:00.000000Z").unwrap();
        let mut reports: Reports = [
            ("a".to_owned(), report("2026-11-20T07:00:00.000000Z")),
            ("b".to_owned(), report("2026-10-20T07:00:00.000000Z")),
        ]
        .into();
        let mut checks = HealthCheckMap::default();
        let two_weeks = Duration::from_secs(14 * DAY);
        health(&reports, now, two_weeks, &mut checks);
        let check = &checks.checks["RECENT_CRASH"];
        assert_eq!(check.summary, "1 daemons have recently crashed");
        assert_eq!(check.detail, ["osd.1 crashed on host h at 2026-11-20T07:00:00.000000Z"]);
        reports.get_mut("a").unwrap()["archived"] = Value::String("now".to_owned());
        let mut checks = HealthCheckMap::default();
        health(&reports, now, two_weeks, &mut checks);
        assert!(checks.checks.is_empty());
    }

    /// An OSD that crashed 40 times was "1 daemons", with 30 lines that looked like all of them.
    #[test]
    fn all_crashes_of_a_daemon_count() {
        let now = time_of("2026-11-21T07:00:00.000000Z").unwrap();
        let at = |n: u32| (n.to_string(), report(&format!("2026-11-20T07:00:{n:02}.000000Z")));
        let found = |crashes: u32| {
            let mut checks = HealthCheckMap::default();
            let reports: Reports = (0..crashes).map(at).collect();
            health(&reports, now, Duration::from_secs(14 * DAY), &mut checks);
            checks.checks.remove("RECENT_CRASH").unwrap()
        };
        let check = found(40);
        assert_eq!((check.summary.as_str(), check.count), ("40 daemons have recently crashed", 40));
        assert_eq!((check.detail.len(), check.detail[30].as_str()), (31, "and 10 more"));
        assert_eq!(found(30).detail.len(), 30);
    }

    /// Reports had no `stack_sig`, by which Ceph's dashboard and telemetry find crashes of one cause. The sums are
    /// those of `calc_sig` of Ceph's module.
    #[test]
    fn crashes_of_one_cause_have_one_signature() {
        let message = |thread: &str, line: u32| {
            format!(
                "osd/PG.cc: In function 'void f(int)' thread {thread} time 2026-11-21T07:00:00+0000\n\
                 osd/PG.cc: {line}: FAILED ceph_assert(a == b)\n"
            )
        };
        let of = |offset: &str, message: String| {
            let frames = [format!("(f(int)+{offset}) [0x7f{offset}]"), "gsignal()".to_owned()];
            let report = serde_json::json!({"backtrace": frames, "assert_msg": message});
            stack_signature(&report).unwrap()
        };
        let first = of("0x10", message("7f01", 77));
        assert_eq!(first, "69ec490890b9d86b43b431131d816ee3c4a236d459c64082e51e08faf9603b07");
        assert_eq!(of("0x24", message("7f02", 78)), first);
        assert_eq!(
            of("0x10", String::new()),
            "8bb72be253260b519bd8a60f11e5e6117c94c5bd967f865dadb6c432180cbe35"
        );
        assert_eq!(stack_signature(&serde_json::json!({"crash_id": "x"})), None);
        let odd = serde_json::json!({"backtrace": [7, "", "\u{e9}"], "assert_msg": " thread "});
        assert!(stack_signature(&odd).is_some());
    }
}
