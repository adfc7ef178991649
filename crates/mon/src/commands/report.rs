//! `report`: everything known about the cluster in one document.

use command::{CommandReply, Format, Formatter};

use maps::PgMapDigest;
use maps::pgmap::{dump_osd_stat, dump_pool_stat};
use types::osd::pg_state::state_string;

use super::cmd::Cmd;
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn report(&mut self, cmd: &Cmd) -> CommandReply {
        self.refresh_health();
        let map = self.osdmap();
        let format = if cmd.format.is_plain() { Format::JsonPretty } else { cmd.format };
        let mut f = Formatter::new(format);
        f.open_object_section("report");
        f.dump_stream("cluster_fingerprint", self.monmap.fsid);
        f.dump_string("version", command::version::SHORT);
        f.dump_string("commit", env!("CARGO_PKG_VERSION"));
        f.dump_stream("timestamp", self.now.wall);
        let tags = cmd.map.strings("tags").unwrap_or_default();
        f.dump_string("tag", tags.join(" "));
        self.dump_health(&mut f, true);
        f.dump_unsigned("monmap_first_committed", 1u32);
        f.dump_unsigned("monmap_last_committed", self.monmap.epoch);
        f.object("monmap", |f| self.monmap.dump(f));
        f.array("quorum", |f| f.dump_int("mon", self.rank()));
        f.object("osdmap", |f| map.dump(f));
        f.array("osd_metadata", |f| {
            for (osd, facts) in &self.osd.metadata {
                f.object("osd", |f| {
                    f.dump_int("id", *osd);
                    facts.iter().for_each(|(key, value)| f.dump_string(key, value));
                });
            }
        });
        self.dump_clean_epochs(&mut f);
        f.dump_unsigned("osdmap_first_committed", self.osd.first);
        f.dump_unsigned("osdmap_last_committed", map.epoch);
        f.object("crushmap", |f| maps::crush_dump::dump_crush(f, &map.crush));
        let fsmap = &self.mds.published;
        f.object("fsmap", |f| fsmap.dump(f));
        f.dump_unsigned("mdsmap_first_committed", self.first_fsmap());
        f.dump_unsigned("mdsmap_last_committed", fsmap.epoch);
        f.object("auth", |f| {
            let keys = self.keys.borrow();
            f.dump_unsigned("first_committed", 1u32);
            f.dump_unsigned("last_committed", keys.data.rotating_ver);
            f.dump_unsigned("num_secrets", keys.data.secrets.len() as u64);
        });
        dump_digest(&mut f, &self.stat.digest);
        f.object("servicemap", |f| self.stat.service_map.dump(f));
        f.close_section();
        let text = f.finish();
        // The checksum lets a reader see that a pasted report is whole.
        let crc = types::crc::crc32c(u32::MAX, text.as_bytes());
        CommandReply { outs: format!("report {crc}"), ..CommandReply::data(text) }
    }
}

/// What the manager counts.
fn dump_digest(f: &mut Formatter, d: &PgMapDigest) {
    f.dump_int("num_pg", d.num_pg);
    f.dump_int("num_pg_active", d.num_pg_active);
    f.dump_int("num_pg_unknown", d.num_pg_unknown);
    f.dump_int("num_osd", d.num_osd);
    f.object("pool_sum", |f| dump_pool_stat(f, &d.pg_sum));
    f.object("osd_sum", |f| dump_osd_stat(f, &d.osd_sum, true));
    f.object("osd_sum_by_class", |f| {
        for (class, sum) in &d.osd_sum_by_class {
            f.object(class, |f| dump_osd_stat(f, sum, true));
        }
    });
    f.array("pool_stats", |f| {
        for (id, stat) in &d.pg_pool_sum {
            f.object("pool_stat", |f| {
                f.dump_int("poolid", *id);
                let pgs = d.num_pg_by_pool.get(&i64::from(*id)).copied().unwrap_or(0);
                f.dump_int("num_pg", pgs);
                dump_pool_stat(f, stat);
            });
        }
    });
    f.array("osd_stats", |f| {
        for (osd, seq) in d.osd_last_seq.iter().enumerate() {
            f.object("osd_stat", |f| {
                f.dump_unsigned("osd", osd as u64);
                f.dump_unsigned("seq", *seq);
            });
        }
    });
    f.array("num_pg_by_state", |f| {
        for (state, n) in &d.num_pg_by_state {
            f.object("count", |f| {
                f.dump_string("state", state_string(*state));
                f.dump_int("num", *n);
            });
        }
    });
    f.array("num_pg_by_osd", |f| {
        for (osd, n) in &d.num_pg_by_osd {
            f.object("count", |f| {
                f.dump_int("osd", *osd);
                f.dump_int("num_primary_pg", n.primary);
                f.dump_int("num_acting_pg", n.acting);
                f.dump_int("num_up_not_acting_pg", n.up_not_acting);
            });
        }
    });
    f.array("purged_snaps", |f| {
        for (pool, set) in &d.purged_snaps {
            f.object("pool", |f| {
                f.dump_int("pool", *pool);
                f.object("purged_snaps", |f| {
                    for (start, len) in set.iter() {
                        f.object("interval", |f| {
                            f.dump_unsigned("start", start);
                            f.dump_unsigned("length", len);
                        });
                    }
                });
            });
        }
    });
}
