//! `balancer ...` (`src/pybind/mgr/balancer/module.py` at v16.2).

use std::collections::BTreeSet;
use std::rc::Rc;

use command::{CommandMap, CommandReply, Format, Formatter};
use maps::OsdMap;

use super::modules::indented;
use super::{EINVAL, ENOENT};
use crate::balancer::{self, Eval, NoPlan, PLANS_MAX, Plan};
use crate::daemon::Mgr;

const ENOEXEC: i32 = 8;
const EAGAIN: i32 = 11;
const EALREADY: i32 = 114;
const EPERM: i32 = 1;

fn text(map: &CommandMap, key: &str) -> String {
    map.opt_string(key).ok().flatten().unwrap_or_default()
}

fn status(mgr: &Mgr) -> CommandReply {
    let state = mgr.balancer.borrow();
    let mut reply = indented(|f| {
        f.dump_bool("active", balancer::is_active(mgr));
        f.dump_string("last_optimize_duration", &state.last_duration);
        f.dump_string("last_optimize_started", &state.last_started);
        f.dump_string("mode", balancer::mode(mgr));
        f.dump_bool("no_optimization_needed", state.nothing_to_do);
        f.dump_string("optimize_result", &state.result);
        f.array("plans", |f| state.plans.keys().for_each(|name| f.dump_string("plan", name)));
    });
    reply.outb = [&reply.outb[..], b"\n"].concat().into();
    reply
}

/// The balancer looks at once whether it is on.
async fn switch(mgr: &Mgr, on: bool) -> CommandReply {
    let reply = set(mgr, "active", if on { "true" } else { "false" }).await;
    mgr.balance_now.notify_all();
    reply
}

async fn set(mgr: &Mgr, name: &str, value: &str) -> CommandReply {
    match balancer::set_option(mgr, name, value).await {
        Ok(()) => CommandReply::default(),
        Err(why) => CommandReply::error(EINVAL, why),
    }
}

async fn set_mode(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let mode = text(map, "mode");
    const LUMINOUS: u8 = 12;
    if mode == "upmap" && mgr.osdmaps.current().require_min_compat_client < LUMINOUS {
        return CommandReply::error(
            EPERM,
            "min_compat_client is below \"luminous\", which is required for pg-upmap. Try \"ceph osd \
             set-require-min-compat-client luminous\" before enabling this mode",
        );
    }
    set(mgr, "mode", &mode).await
}

/// Ids of the pools named; the refusal if one is not there. `word`: what it calls them.
fn pools(map: &CommandMap, osdmap: &OsdMap, word: &str) -> Result<BTreeSet<i64>, CommandReply> {
    let names = map.strings("pools").unwrap_or_default();
    let missing: Vec<String> = names
        .iter()
        .filter(|name| osdmap.lookup_pool(name).is_none())
        .map(|name| format!("'{name}'"))
        .collect();
    if missing.is_empty() {
        return Ok(names.iter().filter_map(|name| osdmap.lookup_pool(name)).collect());
    }
    Err(CommandReply::error(EINVAL, format!("{word} [{}] not found", missing.join(", "))))
}

async fn restrict(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let mut ids = balancer::pool_ids(mgr);
    match pools(map, &osdmap, "pool(s)") {
        Err(reply) if map.prefix() == "balancer pool add" => return reply,
        Err(_) => {}
        Ok(named) if map.prefix() == "balancer pool add" => ids.extend(named),
        Ok(named) => ids.retain(|id| !named.contains(id)),
    }
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    set(mgr, "pool_ids", &ids.join(",")).await
}

/// Unrestricted, nothing: a list without pools would say that it balances none.
fn pool_ls(ids: &BTreeSet<i64>, osdmap: &OsdMap) -> CommandReply {
    if ids.is_empty() {
        return CommandReply::default();
    }
    let mut names: Vec<&String> = ids.iter().filter_map(|id| osdmap.pool_names.get(id)).collect();
    names.sort();
    list(names)
}

/// Indented by 4, as modules in Python answer.
fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> CommandReply {
    let mut f = Formatter::new(Format::JsonPretty);
    f.array("names", |f| names.into_iter().for_each(|name| f.dump_string("name", name)));
    CommandReply::data(f.finish().trim_end().to_owned())
}

/// `balancer eval` and, with all that the score comes from, `balancer eval-verbose`.
fn eval(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let option = text(map, "option");
    let (of, map_of_it, pools) = if option.is_empty() {
        ("current cluster".to_owned(), osdmap.clone(), osdmap.pools.keys().copied().collect())
    } else if let Some(plan) = mgr.balancer.borrow().plans.get(&option) {
        (format!("plan {option} final"), Rc::new(plan.final_map()), plan.pools.clone())
    } else if let Some(id) = osdmap.lookup_pool(&option) {
        (format!("pool \"{option}\""), osdmap.clone(), [id].into())
    } else {
        return CommandReply::error(EINVAL, format!("option \"{option}\" not a plan or a pool"));
    };
    let eval = Eval::of(&map_of_it, &mgr.cluster.borrow().pg_map, &pools);
    let score = format!("score {:.6} (lower is better)\n", eval.score());
    CommandReply::data(match map.prefix() {
        "balancer eval-verbose" => format!("{of}\n{}{score}", eval.text()),
        _ => format!("{of} {score}"),
    })
}

/// While it acts by itself, nobody does beside it.
fn refuse_while_active(mgr: &Mgr, what: &str) -> Option<CommandReply> {
    let text = format!("Balancer enabled, disable to {what}");
    if !balancer::is_active(mgr) && mgr.balancer.borrow().busy {
        return Some(CommandReply::error(EINVAL, "Balancer finishing up....try again"));
    }
    balancer::is_active(mgr).then(|| CommandReply::error(EINVAL, text))
}

fn optimize(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    if let Some(refusal) = refuse_while_active(mgr, "optimize manually") {
        return refusal;
    }
    let name = text(map, "plan");
    let wanted = match pools(map, &mgr.osdmaps.current(), "pools") {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    if mgr.balancer.borrow().plans.len() >= PLANS_MAX {
        return CommandReply::error(EAGAIN, "too many plans; remove one with 'ceph balancer rm'");
    }
    match balancer::try_optimize(mgr, &wanted) {
        Ok(plan) => {
            mgr.balancer.borrow_mut().plans.insert(name, plan);
            CommandReply::default()
        }
        Err(NoPlan::NotNow(why)) => CommandReply::error(EAGAIN, why),
        Err(NoPlan::Mode(why)) => CommandReply::error(ENOEXEC, why),
        Err(NoPlan::NoPools(why)) => CommandReply::error(ENOENT, why),
        Err(NoPlan::Done(why)) => CommandReply::error(EALREADY, why),
    }
}

fn with_plan(
    mgr: &Mgr,
    map: &CommandMap,
    answer: impl FnOnce(&Plan) -> CommandReply,
) -> CommandReply {
    let name = text(map, "plan");
    match mgr.balancer.borrow().plans.get(&name) {
        Some(plan) => answer(plan),
        None => CommandReply::error(ENOENT, format!("plan {name} not found")),
    }
}

async fn execute(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    if let Some(refusal) = refuse_while_active(mgr, "execute a plan") {
        return refusal;
    }
    let name = text(map, "plan");
    let plan = mgr.balancer.borrow().plans.get(&name).cloned();
    let Some(plan) = plan else {
        return CommandReply::error(ENOENT, format!("plan {name} not found"));
    };
    let done = plan.execute(mgr).await;
    // What was refused may be half done: it is not tried again as it was.
    mgr.balancer.borrow_mut().plans.remove(&name);
    match done {
        Ok(()) => CommandReply::default(),
        Err((rc, why)) => CommandReply::error(rc.abs(), why),
    }
}

/// Answers the module's commands.
pub(super) async fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    match map.prefix() {
        "balancer status" => status(mgr),
        "balancer mode" => set_mode(mgr, map).await,
        "balancer on" => switch(mgr, true).await,
        "balancer off" => switch(mgr, false).await,
        "balancer pool ls" => pool_ls(&balancer::pool_ids(mgr), &mgr.osdmaps.current()),
        "balancer pool add" | "balancer pool rm" => restrict(mgr, map).await,
        "balancer eval" | "balancer eval-verbose" => eval(mgr, map),
        "balancer optimize" => optimize(mgr, map),
        "balancer show" => with_plan(mgr, map, |plan| CommandReply::data(plan.text())),
        "balancer dump" => with_plan(mgr, map, |plan| CommandReply::data(plan.increment())),
        "balancer rm" => {
            mgr.balancer.borrow_mut().plans.remove(&text(map, "plan"));
            CommandReply::default()
        }
        "balancer reset" => {
            mgr.balancer.borrow_mut().plans.clear();
            CommandReply::default()
        }
        "balancer ls" => list(mgr.balancer.borrow().plans.keys()),
        "balancer execute" => execute(mgr, map).await,
        _ => CommandReply::error(EINVAL, "command not supported"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `balancer pool ls` said `[]` when all pools are balanced.
    #[test]
    fn pools_are_listed_where_there_is_a_choice() {
        let names = [(1, "rbd"), (2, "a")].map(|(id, name)| (id, name.to_owned()));
        let map = OsdMap { pool_names: names.into(), ..OsdMap::default() };
        let listed = |ids: &[i64]| pool_ls(&ids.iter().copied().collect(), &map).outb;
        assert_eq!(listed(&[]), "");
        assert_eq!(listed(&[1, 2, 3]), "[\n    \"a\",\n    \"rbd\"\n]");
    }
}
