//! Signatures: what is called how, and by whom. The interface is Ceph's
//! (`src/mgr/MgrCommands.h` and the modules at v16.2), the help is ours.

use command::{CommandTable, Signature};

/// Signature, help, service, permission.
pub(crate) const TABLE: &[[&str; 4]] = &[
    ["balancer status", "show what the balancer does", "mgr", "r"],
    ["balancer mode name=mode,type=CephChoices,strings=none|crush-compat|upmap", "choose how to balance", "mgr", "rw"],
    ["balancer on", "balance automatically", "mgr", "rw"],
    ["balancer off", "balance by plans only", "mgr", "rw"],
    ["balancer pool ls", "list the pools that the balancer is restricted to", "mgr", "r"],
    ["balancer pool add name=pools,type=CephString,n=N", "restrict the balancer to pools", "mgr", "rw"],
    ["balancer pool rm name=pools,type=CephString,n=N", "take pools off that list", "mgr", "rw"],
    ["balancer eval name=option,type=CephString,req=false", "score how even data lies, or would after a plan", "mgr", "r"],
    ["balancer optimize name=plan,type=CephString name=pools,type=CephString,n=N,req=false", "make a plan", "mgr", "rw"],
    ["balancer show name=plan,type=CephString", "show what a plan would do", "mgr", "r"],
    ["balancer rm name=plan,type=CephString", "throw a plan away", "mgr", "rw"],
    ["balancer reset", "throw all plans away", "mgr", "rw"],
    ["balancer ls", "list plans", "mgr", "r"],
    ["balancer execute name=plan,type=CephString", "carry a plan out", "mgr", "rw"],
    ["crash ls", "list crashes", "mgr", "r"],
    ["crash ls-new", "list crashes that nobody has looked at", "mgr", "r"],
    ["crash stat", "count crashes", "mgr", "r"],
    ["crash info name=id,type=CephString", "show a crash report", "mgr", "r"],
    ["crash post", "take a crash report (-i FILE)", "mgr", "rw"],
    ["crash rm name=id,type=CephString", "remove a crash report", "mgr", "rw"],
    ["crash prune name=keep,type=CephString", "remove crash reports older than that many days", "mgr", "rw"],
    ["crash archive name=id,type=CephString", "take note of a crash: health forgets it", "mgr", "w"],
    ["crash archive-all", "take note of all crashes", "mgr", "w"],
    ["telemetry status", "show the settings of telemetry, which is off", "mgr", "r"],
    [
        "iostat name=width,type=CephInt,req=false name=print_header,type=CephBool,req=false",
        "show what clients do now",
        "mgr",
        "r",
    ],
    ["progress", "show what goes on", "mgr", "r"],
    ["progress json", "show what goes on as JSON", "mgr", "r"],
    [
        "osd status name=bucket,type=CephString,req=false",
        "show the space and the load of OSDs",
        "mgr",
        "r",
    ],
    ["pg stat", "show how many PGs are in which state, and the space used", "pg", "r"],
    ["pg getmap", "get the binary PG map", "pg", "r"],
    [
        "pg dump name=dumpcontents,type=CephChoices,strings=all|summary|sum|delta|pools|osds|pgs|pgs_brief,n=N,req=false",
        "show the statistics of all PGs, pools and OSDs, or parts of them",
        "pg",
        "r",
    ],
    [
        "pg dump_json name=dumpcontents,type=CephChoices,strings=all|summary|sum|pools|osds|pgs,n=N,req=false",
        "show the statistics of all PGs, pools and OSDs as JSON",
        "pg",
        "r",
    ],
    ["pg dump_pools_json", "show the statistics of pools as JSON", "pg", "r"],
    [
        "pg ls-by-pool name=poolstr,type=CephString name=states,type=CephString,n=N,req=false",
        "list the PGs of a pool",
        "pg",
        "r",
    ],
    [
        "pg ls-by-primary name=osd,type=CephOsdName name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "list the PGs that an OSD leads",
        "pg",
        "r",
    ],
    [
        "pg ls-by-osd name=osd,type=CephOsdName name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "list the PGs that an OSD serves",
        "pg",
        "r",
    ],
    [
        "pg ls name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
        "list PGs, of one pool or in some states only",
        "pg",
        "r",
    ],
    [
        "pg dump_stuck name=stuckops,type=CephChoices,strings=inactive|unclean|stale|undersized|degraded,n=N,req=false name=threshold,type=CephInt,req=false",
        "show PGs that have been in a bad state for long",
        "pg",
        "r",
    ],
    [
        "pg debug name=debugop,type=CephChoices,strings=unfound_objects_exist|degraded_pgs_exist",
        "answer a question that scripts of tests ask",
        "pg",
        "r",
    ],
    ["pg scrub name=pgid,type=CephPgid", "check a PG's metadata", "pg", "rw"],
    ["pg deep-scrub name=pgid,type=CephPgid", "check a PG's contents", "pg", "rw"],
    [
        "pg repair name=pgid,type=CephPgid",
        "check a PG's contents and repair what is wrong",
        "pg",
        "rw",
    ],
    ["pg force-recovery name=pgid,type=CephPgid,n=N", "recover these PGs first", "pg", "rw"],
    ["pg force-backfill name=pgid,type=CephPgid,n=N", "backfill these PGs first", "pg", "rw"],
    [
        "pg cancel-force-recovery name=pgid,type=CephPgid,n=N",
        "give these PGs their normal priority of recovery back",
        "pg",
        "rw",
    ],
    [
        "pg cancel-force-backfill name=pgid,type=CephPgid,n=N",
        "give these PGs their normal priority of backfill back",
        "pg",
        "rw",
    ],
    ["osd perf", "show the latencies of OSDs' stores", "osd", "r"],
    [
        "osd df name=output_method,type=CephChoices,strings=plain|tree,req=false name=filter_by,type=CephChoices,strings=class|name,req=false name=filter,type=CephString,req=false",
        "show the space used on OSDs",
        "osd",
        "r",
    ],
    ["osd blocked-by", "show for which OSDs peering waits", "osd", "r"],
    [
        "osd pool stats name=pool_name,type=CephPoolname,req=false",
        "show what clients and recovery do in pools",
        "osd",
        "r",
    ],
    [
        "osd pool scrub name=who,type=CephPoolname,n=N",
        "check the metadata of pools' PGs",
        "osd",
        "rw",
    ],
    [
        "osd pool deep-scrub name=who,type=CephPoolname,n=N",
        "check the contents of pools' PGs",
        "osd",
        "rw",
    ],
    [
        "osd pool repair name=who,type=CephPoolname,n=N",
        "check the contents of pools' PGs and repair what is wrong",
        "osd",
        "rw",
    ],
    [
        "osd pool force-recovery name=who,type=CephPoolname,n=N",
        "recover these pools' PGs first",
        "osd",
        "rw",
    ],
    [
        "osd pool force-backfill name=who,type=CephPoolname,n=N",
        "backfill these pools' PGs first",
        "osd",
        "rw",
    ],
    [
        "osd pool cancel-force-recovery name=who,type=CephPoolname,n=N",
        "give these pools' PGs their normal priority of recovery back",
        "osd",
        "rw",
    ],
    [
        "osd pool cancel-force-backfill name=who,type=CephPoolname,n=N",
        "give these pools' PGs their normal priority of backfill back",
        "osd",
        "rw",
    ],
    [
        "osd destroy name=id,type=CephOsdName name=force,type=CephBool,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        "mark an OSD's store as gone for good, keeping its id",
        "osd",
        "rw",
    ],
    [
        "osd purge name=id,type=CephOsdName name=force,type=CephBool,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        "remove an OSD from all maps",
        "osd",
        "rw",
    ],
    [
        "osd safe-to-destroy name=ids,type=CephString,n=N",
        "tell whether OSDs can be destroyed without reducing durability",
        "osd",
        "r",
    ],
    [
        "osd ok-to-stop name=ids,type=CephString,n=N name=max,type=CephInt,req=false",
        "tell whether OSDs can be stopped without PGs becoming unavailable",
        "osd",
        "r",
    ],
    [
        "osd scrub name=who,type=CephString",
        "check the metadata of the PGs that OSDs lead",
        "osd",
        "rw",
    ],
    [
        "osd deep-scrub name=who,type=CephString",
        "check the contents of the PGs that OSDs lead",
        "osd",
        "rw",
    ],
    [
        "osd repair name=who,type=CephString",
        "check the contents of the PGs that OSDs lead and repair what is wrong",
        "osd",
        "rw",
    ],
    ["service dump", "show the daemons of services as the service map has them", "service", "r"],
    ["service status", "show the state of services' daemons", "service", "r"],
    [
        "config show name=who,type=CephString name=key,type=CephString,req=False",
        "show a daemon's running configuration",
        "mgr",
        "r",
    ],
    [
        "config show-with-defaults name=who,type=CephString",
        "show a daemon's running configuration, defaults too",
        "mgr",
        "r",
    ],
    ["device ls", "list devices", "mgr", "r"],
    ["device info name=devid,type=CephString", "show one device", "mgr", "r"],
    ["device ls-by-daemon name=who,type=CephString", "list the devices of a daemon", "mgr", "r"],
    ["device ls-by-host name=host,type=CephString", "list the devices of a host", "mgr", "r"],
    [
        "osd pool autoscale-status name=format,type=CephString,req=false",
        "show how pools' PG counts compare with what they hold",
        "mgr",
        "r",
    ],
    [
        "osd reweight-by-utilization name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false name=max_osds,type=CephInt,req=false name=no_increasing,type=CephChoices,strings=--no-increasing,req=false",
        "take load from OSDs that are fuller than the average",
        "osd",
        "rw",
    ],
    [
        "osd test-reweight-by-utilization name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false name=max_osds,type=CephInt,req=false name=no_increasing,type=CephBool,req=false",
        "show what reweight-by-utilization would do",
        "osd",
        "r",
    ],
    [
        "osd reweight-by-pg name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false name=max_osds,type=CephInt,req=false name=pools,type=CephPoolname,n=N,req=false",
        "take PGs from OSDs that have more than the average",
        "osd",
        "rw",
    ],
    [
        "osd test-reweight-by-pg name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false name=max_osds,type=CephInt,req=false name=pools,type=CephPoolname,n=N,req=false",
        "show what reweight-by-pg would do",
        "osd",
        "r",
    ],
];

/// Flags of a command, by its signature: tools repeat `iostat` until they are stopped.
pub(crate) fn flags_of(sig: &str) -> u64 {
    if sig.starts_with("iostat") { command::FLAG_POLL } else { 0 }
}

/// All commands.
pub(crate) fn table() -> CommandTable {
    let mut all = CommandTable::new();
    for [sig, help, module, perm] in TABLE {
        all.push(Signature::new(sig, help, module, perm, flags_of(sig)));
    }
    all
}
