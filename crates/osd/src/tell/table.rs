//! Which commands there are. Names and arguments are Ceph's, in Ceph's order (by name); commands
//! that poke at a store Ceph has and we have not are left out.

use command::{CommandTable, Signature};

/// Signature and help; those that every daemon has are added from the crates `command`, `config` and `perf`.
const COMMANDS: &[(&str, &str)] = &[
    (
        "bench name=count,type=CephInt,req=false name=size,type=CephInt,req=false \
         name=object_size,type=CephInt,req=false name=object_num,type=CephInt,req=false",
        "write <count> bytes to the store in blocks of <size> (1 GiB of 4 MiB if not told \
         otherwise), each into a new object or into <object_num> objects of <object_size>",
    ),
    ("cache drop", "free what can be read again"),
    ("cache status", "show what is cached"),
    (
        "cluster_log name=level,type=CephChoices,strings=error|warning|info|debug \
         name=message,type=CephString,n=N",
        "write a line into the cluster log",
    ),
    ("compact", "write the store's metadata in its shortest form"),
    (
        "dump_blocked_ops name=filterstr,type=CephString,n=N,req=false",
        "show ops under way for longer than the complaint time",
    ),
    ("dump_blocklist", "show which clients are shut out and until when"),
    (
        "dump_historic_ops name=filterstr,type=CephString,n=N,req=false",
        "show remembered ops by their arrival",
    ),
    (
        "dump_historic_ops_by_duration name=filterstr,type=CephString,n=N,req=false",
        "show remembered ops, slowest first",
    ),
    (
        "dump_historic_slow_ops name=filterstr,type=CephString,n=N,req=false",
        "show remembered ops that took longer than the threshold",
    ),
    ("dump_ops_in_flight name=filterstr,type=CephString,n=N,req=false", "show ops under way"),
    (
        "dump_osd_network name=value,type=CephInt,req=false",
        "show slow heartbeats: from <value> milliseconds on",
    ),
    ("dump_pgstate_history", "show where each PG's peering stands"),
    ("dump_pg_recovery_stats", "show how long PGs stay in which peering states"),
    ("dump_watchers", "show who watches which objects"),
    ("flush_pg_stats", "report statistics now and print the report's number"),
    ("get_latest_osdmap", "wait for the newest map the monitor has"),
    ("get_mapped_pools", "list the pools with PGs on this OSD"),
    (
        "heap name=heapcmd,type=CephChoices,strings=dump|start_profiler|stop_profiler|release|\
         get_release_rate|set_release_rate|stats name=value,type=CephString,req=false",
        "examine the heap (only where the allocator can)",
    ),
    (
        "injectfull name=type,type=CephString,req=false name=count,type=CephInt,req=false",
        "pretend to be none, nearfull, backfillfull, full or failsafe full, for <count> writes",
    ),
    ("list_devices", "list the devices of the store"),
    (
        "list_unfound name=pgid,type=CephPgid,req=false name=offset,type=CephString,req=false",
        "list a PG's objects of which no copy is found, from an offset in JSON on",
    ),
    (
        "mark_unfound_lost name=pgid,type=CephPgid,req=false \
         name=mulcmd,type=CephChoices,strings=revert|delete",
        "give a PG's unfound objects up: go back to an older version or delete them",
    ),
    ("ops name=filterstr,type=CephString,n=N,req=false", "show ops under way"),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=deep_scrub \
         name=time,type=CephInt,req=false",
        "",
    ),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=scrub \
         name=time,type=CephInt,req=false",
        "",
    ),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=list_unfound \
         name=offset,type=CephString,req=false",
        "",
    ),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=mark_unfound_lost \
         name=mulcmd,type=CephChoices,strings=revert|delete",
        "",
    ),
    ("pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query", ""),
    ("reset_pg_recovery_stats", "start what dump_pg_recovery_stats counts from zero"),
    ("query", "show all a PG knows of itself"),
    ("send_beacon", "tell the monitor now that this OSD lives"),
    ("smart name=devid,type=CephString,req=false", "show what the devices say of their health"),
    ("status", "show where this OSD stands"),
    ("getomap name=pool,type=CephString name=objname,type=CephObjectname", "show a copy's omap"),
    (
        "injectdataerr name=pool,type=CephString name=objname,type=CephObjectname name=shardid,type=CephInt,req=false,range=0|255",
        "make the content of this OSD's copy of an object unreadable",
    ),
    (
        "injectmdataerr name=pool,type=CephString name=objname,type=CephObjectname name=shardid,type=CephInt,req=false,range=0|255",
        "make the metadata of this OSD's copy of an object unreadable",
    ),
    (
        "rmomapkey name=pool,type=CephString name=objname,type=CephObjectname name=key,type=CephString",
        "remove an omap key from this OSD's copy of an object",
    ),
    (
        "setomapheader name=pool,type=CephString name=objname,type=CephObjectname name=header,type=CephString",
        "set the omap header of this OSD's copy of an object",
    ),
    (
        "setomapval name=pool,type=CephString name=objname,type=CephObjectname name=key,type=CephString name=val,type=CephString",
        "set an omap key of this OSD's copy of an object",
    ),
    (
        "truncobj name=pool,type=CephString name=objname,type=CephObjectname name=len,type=CephInt",
        "truncate this OSD's copy of an object",
    ),
    (
        "deep_scrub name=pgid,type=CephPgid,req=false name=time,type=CephInt,req=false",
        "make a deep scrub of a PG due, as if the last were <time> seconds old or long enough ago",
    ),
    (
        "scrub name=pgid,type=CephPgid,req=false name=time,type=CephInt,req=false",
        "make a scrub of a PG due, as if the last were <time> seconds old or long enough ago",
    ),
    (
        "dump_recovery_reservations",
        "show which PGs have or wait for slots for recovery and backfill",
    ),
    ("dump_scrub_reservations", "show how many scrubs this OSD takes part in"),
    ("dump_scrubs", "show when PGs are scrubbed next"),
];

/// The commands of `ceph tell osd.N`.
pub fn table() -> CommandTable {
    let mut all: Vec<Signature> = COMMANDS
        .iter()
        .map(|(signature, help)| Signature::new(signature, help, "osd", "rwx", 0))
        .chain(command::admin_signatures())
        .chain(config::admin_signatures())
        .chain(perf::signatures())
        .collect();
    // Stable: commands of one name keep their order.
    all.sort_by_key(Signature::prefix);
    let mut table = CommandTable::new();
    all.into_iter().for_each(|command| table.push(command));
    table
}

/// The commands of the admin socket: the same, as in Ceph.
pub fn admin_table() -> CommandTable {
    table()
}
