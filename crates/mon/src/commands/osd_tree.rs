//! `osd tree` and `osd tree-from`.

use maps::osdmap::TreeFilter;
use types::Errno;

use super::cmd::{Cmd, CmdResult, fail};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn osd_tree(&mut self, cmd: &Cmd) -> CmdResult {
        let map = self.wanted_map(cmd)?;
        let mut filter = TreeFilter::default();
        for state in cmd.map.strings("states")? {
            match state.as_str() {
                "up" => filter.up = true,
                "down" => filter.down = true,
                "in" => filter.within = true,
                "out" => filter.out = true,
                "destroyed" => filter.destroyed = true,
                _ => return fail(Errno::EINVAL, format!("unrecognized state '{state}'")),
            }
        }
        if filter.within && filter.out {
            return fail(Errno::EINVAL, "cannot specify both 'in' and 'out'");
        }
        let stands = [filter.up, filter.down, filter.destroyed];
        if stands.into_iter().filter(|asked| *asked).count() > 1 {
            let text = "can specify only one of 'up', 'down' and 'destroyed'";
            return fail(Errno::EINVAL, text);
        }
        let mut bucket = None;
        if cmd.prefix == "osd tree-from" {
            let name = cmd.string("bucket")?;
            match map.crush.id_of(&name) {
                Some(id) if id < 0 => bucket = Some(id),
                Some(id) => {
                    return fail(
                        Errno::EINVAL,
                        format!("\"{name}\" is not a bucket, it is an osd (id {id})"),
                    );
                }
                None => return fail(Errno::ENOENT, format!("bucket '{name}' does not exist")),
            }
        }
        Ok(cmd.output(
            |f| f.object("tree", |f| map.dump_tree(f, bucket, filter)),
            || map.tree(bucket, filter),
        ))
    }
}
