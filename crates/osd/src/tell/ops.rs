//! Ops under way and ops remembered (`src/common/TrackedOp.cc` at v16.2).
//!
//! Ceph filters by the client's address; here a filter is any part of an op's description, such
//! as `client.4123`. An op is shown if one of the filters fits, or if there is none.

use std::time::Duration;

use command::{BadArgument, CommandMap, CommandReply, Formatter};

use super::Target;

fn filters(map: &CommandMap) -> Result<impl Fn(&str) -> bool, BadArgument> {
    let filters = map.strings("filterstr")?;
    Ok(move |description: &str| {
        filters.is_empty() || filters.iter().any(|f| description.contains(f.as_str()))
    })
}

pub(super) fn in_flight(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let wanted = filters(map)?;
    let mut f = Formatter::new(map.format());
    f.object("ops_in_flight", |f| {
        let count = target.tracker().dump_live(f, Duration::ZERO, &wanted);
        f.dump_unsigned("num_ops", count as u64);
    });
    Ok(CommandReply::formatted(f))
}

pub(super) fn blocked(target: &dyn Target, map: &CommandMap) -> Result<CommandReply, BadArgument> {
    let wanted = filters(map)?;
    let complaint = target.config().float("osd_op_complaint_time");
    let age = Duration::try_from_secs_f64(complaint).unwrap_or(Duration::MAX);
    let mut f = Formatter::new(map.format());
    f.object("ops_in_flight", |f| {
        let count = target.tracker().dump_live(f, age, &wanted);
        f.dump_float("complaint_time", complaint);
        f.dump_unsigned("num_blocked_ops", count as u64);
    });
    Ok(CommandReply::formatted(f))
}

pub(super) fn historic(
    target: &dyn Target,
    map: &CommandMap,
    by_duration: bool,
) -> Result<CommandReply, BadArgument> {
    let wanted = filters(map)?;
    let tracker = target.tracker();
    let mut f = Formatter::new(map.format());
    f.object("op_history", |f| {
        f.dump_unsigned("size", tracker.history_size() as u64);
        f.dump_unsigned("duration", tracker.history_duration().as_secs());
        f.array("ops", |f| tracker.dump_past(f, by_duration, &wanted));
    });
    Ok(CommandReply::formatted(f))
}

pub(super) fn historic_slow(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let wanted = filters(map)?;
    let tracker = target.tracker();
    let mut f = Formatter::new(map.format());
    f.object("OpHistory slow ops", |f| {
        f.dump_unsigned("num to keep", tracker.history_size() as u64);
        f.dump_unsigned("threshold to keep", tracker.slow_threshold.get().as_secs());
        f.array("Ops", |f| tracker.dump_slow(f, &wanted));
    });
    Ok(CommandReply::formatted(f))
}
