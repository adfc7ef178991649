//! What Ceph answers from modules in Python, as far as there is something true to say here: no
//! optimizer runs, no device is watched, no crash is collected.

use command::{CommandMap, CommandReply, Format, Formatter, format_bytes};

use crate::daemon::Mgr;

const EPERM: i32 = 1;
const NEVER_SENT: &str = "Loligo has no telemetry and sends nothing to anybody";

/// A document indented by 4 whatever form was asked for, as modules in Python answer.
pub(super) fn indented(fill: impl FnOnce(&mut Formatter)) -> CommandReply {
    let mut f = Formatter::new(Format::JsonPretty);
    f.object("document", fill);
    CommandReply::data(f.finish().trim_end().to_owned())
}

/// Answers the module's command; `None`: not one of these.
pub(super) fn run(mgr: &Mgr, map: &CommandMap) -> Option<CommandReply> {
    Some(match map.prefix() {
        "telemetry status" => telemetry(),
        // It is off.
        "telemetry off" => CommandReply::default(),
        "telemetry on" | "telemetry send" => {
            CommandReply::error(EPERM, format!("{NEVER_SENT}: nothing was switched on or sent"))
        }
        prefix if prefix.starts_with("telemetry show") => {
            CommandReply { outs: NEVER_SENT.to_owned(), ..CommandReply::data("{}\n") }
        }
        "iostat" => iostat(mgr, map),
        "service dump" => service_dump(mgr, map),
        "service status" => service_status(mgr, map),
        _ => return None,
    })
}

/// Nothing is ever sent: the settings are those of Ceph's module while it is off.
fn telemetry() -> CommandReply {
    let null = |f: &mut Formatter, name: &str| f.dump_unquoted(name, "null");
    let mut reply = indented(|f| {
        for channel in ["basic", "crash", "device"] {
            f.dump_bool(&format!("channel_{channel}"), true);
        }
        f.dump_bool("channel_ident", false);
        null(f, "contact");
        null(f, "description");
        f.dump_string("device_url", "");
        f.dump_bool("enabled", false);
        f.dump_unsigned("interval", 24_u64);
        f.dump_unsigned("last_opt_revision", 1_u64);
        null(f, "last_upload");
        f.dump_bool("leaderboard", false);
        for level in ["log_level", "log_to_cluster_level"] {
            f.dump_string(level, "");
        }
        f.dump_bool("log_to_cluster", false);
        f.dump_bool("log_to_file", false);
        null(f, "organization");
        null(f, "proxy");
        f.dump_string("url", "");
    });
    reply.outb = [&reply.outb[..], b"\n"].concat().into();
    reply
}

/// One line of what clients do, with the head if asked for.
fn iostat(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let cluster = mgr.cluster.borrow();
    let digest = &cluster.pg_map.digest;
    let seconds = digest.stamp_delta.as_secs_f64();
    let sum = &digest.pg_sum_delta.stats.sum;
    let rate = |n: i64| {
        if seconds > 0.0 { (u64::try_from(n).unwrap_or(0) as f64 / seconds) as u64 } else { 0 }
    };
    let cells = [
        ("Read", format!("{}/s", format_bytes(rate(sum.num_rd_kb) << 10))),
        ("Write", format!("{}/s", format_bytes(rate(sum.num_wr_kb) << 10))),
        ("Total", format!("{}/s", format_bytes(rate(sum.num_rd_kb + sum.num_wr_kb) << 10))),
        ("Read IOPS", rate(sum.num_rd).to_string()),
        ("Write IOPS", rate(sum.num_wr).to_string()),
        ("Total IOPS", rate(sum.num_rd + sum.num_wr).to_string()),
    ];
    const WIDTH: usize = 80;
    let width = map.opt_int("width").ok().flatten().and_then(|w| usize::try_from(w).ok());
    let cell = width.unwrap_or(WIDTH).clamp(24, 4096) / cells.len() - 4;
    let mut out = String::new();
    if map.flag("print_header") {
        let rule: String = cells.iter().map(|_| format!("+{:-<1$}", "", cell + 2)).collect();
        out += &format!("{rule}+\n");
        let head: String = cells.iter().map(|(h, _)| format!("| {h:>cell$} ")).collect();
        out += &format!("{head}|\n{rule}+\n");
    }
    let row: String = cells.iter().map(|(_, text)| format!("| {text:>cell$} ")).collect();
    CommandReply::data(format!("{out}{row}|"))
}

fn service_dump(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let cluster = mgr.cluster.borrow();
    let mut f = Formatter::new(map.format());
    f.object("service_map", |f| cluster.service_map.dump(f));
    CommandReply::formatted(f)
}

/// What services' daemons say of themselves: `rbd mirror pool status` calls one that says nothing unhealthy.
fn service_status(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let (cluster, daemons) = (mgr.cluster.borrow(), mgr.daemons.borrow());
    let mut f = Formatter::new(map.format());
    f.object("service_status", |f| {
        for (name, service) in &cluster.service_map.services {
            f.object(name, |f| {
                for id in service.daemons.keys() {
                    let Some(daemon) = daemons.find(name, id) else { continue };
                    f.object(id, |f| {
                        f.dump_stream("status_stamp", daemon.status_since);
                        f.dump_stream("last_beacon", daemon.last_beacon);
                        f.object("status", |f| {
                            daemon.status.iter().for_each(|(key, value)| f.dump_string(key, value));
                        });
                    });
                }
            });
        }
    });
    CommandReply::formatted(f)
}
