//! `report`: everything known about the cluster in one document.

use command::{CommandReply, Format, Formatter};

use super::cmd::Cmd;
use super::tell::VERSION;
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn report(&mut self, cmd: &Cmd) -> CommandReply {
        self.refresh_health();
        let map = self.osdmap();
        let format = if cmd.format.is_plain() {
            Format::JsonPretty
        } else {
            cmd.format
        };
        let mut f = Formatter::new(format);
        f.open_object_section("report");
        f.dump_stream("cluster_fingerprint", self.monmap.fsid);
        f.dump_string("version", VERSION);
        f.dump_string("commit", env!("CARGO_PKG_VERSION"));
        f.dump_stream("timestamp", self.now.wall);
        let tags = cmd.map.strings("tags").unwrap_or_default();
        f.dump_string("tag", tags.join(" "));
        self.dump_health(&mut f, true);
        f.dump_string("monmap_first_committed", "1");
        f.dump_stream("monmap_last_committed", self.monmap.epoch);
        crate::dump::monmap(&mut f, "monmap", &self.monmap);
        f.array("quorum", |f| f.dump_int("mon", self.rank()));
        f.array("mon_metadata", |f| {
            for (name, facts) in &self.mon_metadata {
                f.object("mon", |f| {
                    f.dump_string("name", name);
                    facts
                        .iter()
                        .for_each(|(key, value)| f.dump_string(key, value));
                });
            }
        });
        f.dump_unsigned("osdmap_first_committed", self.osd.first);
        f.dump_unsigned("osdmap_last_committed", map.epoch);
        f.object("osdmap", |f| map.dump(f));
        f.array("osd_metadata", |f| {
            for (osd, facts) in &self.osd.metadata {
                f.object("osd", |f| {
                    f.dump_int("id", *osd);
                    facts
                        .iter()
                        .for_each(|(key, value)| f.dump_string(key, value));
                });
            }
        });
        super::crush_rule::dump_map(&mut f, &map.crush);
        f.object("fsmap", |f| {
            super::fs::dump_fields(f, &maps::FsMap::default())
        });
        f.object("pgmap", |f| self.stat.digest.dump_summary(f));
        f.array("creating_pgs", |f| {
            self.osd
                .creating
                .ids()
                .for_each(|pgid| f.dump_stream("pg", pgid));
        });
        super::status::dump_service_map(&mut f, &self.stat.service_map);
        f.close_section();
        let text = f.finish();
        // The checksum lets a reader see that a pasted report is whole.
        let crc = types::crc::crc32c(u32::MAX, text.as_bytes());
        CommandReply {
            outs: format!("report {crc}"),
            ..CommandReply::data(text)
        }
    }
}
