//! Vectors of random ops with random arguments: whatever comes, no panic, no inconsistency.

use types::osd::ops::{ExtentArgs, OpArgs};

use super::*;

/// A small generator: the same vectors in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => self.below(10),
            2 => self.below(70_000),
            3 => u64::MAX - self.below(3),
            4 => 1 << self.below(64),
            _ => self.0,
        }
    }

    fn bytes(&mut self, max: u64) -> Bytes {
        let len = self.below(max);
        (0..len).map(|_| self.below(256) as u8).collect::<Vec<_>>().into()
    }

    /// Bytes that begin like an encoded key, map or blob.
    fn input(&mut self) -> Bytes {
        let mut w = denc::Writer::new();
        for _ in 0..self.below(4) {
            match self.below(4) {
                0 => w.u32(self.below(4) as u32),
                1 => w.blob(&self.bytes(6)),
                2 => w.u64(self.number()),
                _ => w.raw(&self.bytes(9)),
            }
        }
        w.into_bytes()
    }
}

const CODES: &[u16] = &[
    ops::READ,
    ops::STAT,
    ops::MAPEXT,
    ops::SPARSE_READ,
    ops::NOTIFY,
    ops::NOTIFY_ACK,
    ops::ASSERT_VER,
    ops::LIST_WATCHERS,
    ops::SYNC_READ,
    ops::TMAPGET,
    ops::OMAPGETKEYS,
    ops::OMAPGETVALS,
    ops::OMAPGETHEADER,
    ops::OMAPGETVALSBYKEYS,
    ops::OMAP_CMP,
    ops::ISDIRTY,
    ops::COPY_GET,
    ops::CHECKSUM,
    ops::CMPEXT,
    ops::GETXATTR,
    ops::GETXATTRS,
    ops::CMPXATTR,
    ops::WRITE,
    ops::WRITE,
    ops::WRITEFULL,
    ops::TRUNCATE,
    ops::ZERO,
    ops::DELETE,
    ops::APPEND,
    ops::TRIMTRUNC,
    ops::TMAPPUT,
    ops::CREATE,
    ops::ROLLBACK,
    ops::WATCH,
    ops::OMAPSETVALS,
    ops::OMAPSETHEADER,
    ops::OMAPCLEAR,
    ops::OMAPRMKEYS,
    ops::COPY_FROM,
    ops::UNDIRTY,
    ops::SETALLOCHINT,
    ops::WRITESAME,
    ops::OMAPRMKEYRANGE,
    ops::COPY_FROM2,
    ops::SETXATTR,
    ops::RMXATTR,
    ops::TMAPUP,
    ops::TMAP2OMAP,
    ops::CACHE_FLUSH,
    ops::TIER_PROMOTE,
];

fn random_op(random: &mut Random) -> OsdOp {
    let code = match random.below(40) {
        0 => random.below(1 << 16) as u16,
        _ => CODES[random.below(CODES.len() as u64) as usize],
    };
    if code == ops::CALL || random.below(15) == 0 {
        let class = &cls::CLASSES[random.below(cls::CLASSES.len() as u64) as usize];
        let method = class.methods[random.below(class.methods.len() as u64) as usize].name;
        return call(class.name, method, &random.input());
    }
    let mut op = OsdOp::new(code);
    op.flags = random.below(3) as u32;
    op.indata = random.input();
    let len = op.indata.len() as u64;
    match random.below(3) {
        // Arguments that make sense for most ops.
        0 | 1 => {
            op.args.set_extent(ExtentArgs {
                offset: random.below(200),
                length: if random.below(3) == 0 { random.below(300) } else { len },
                truncate_size: random.below(50),
                truncate_seq: random.below(3) as u32,
            });
            if op.is_attr_type() {
                let name_len = random.below(len + 2) as u32;
                let mut args = op.args.xattr();
                args.name_len = name_len;
                args.value_len = (len as u32).saturating_sub(name_len);
                args.compare_op = random.below(8) as u8;
                args.compare_mode = random.below(3) as u8;
                op.args.set_xattr(args);
            }
        }
        _ => {
            let mut args = OpArgs::default();
            for word in args.0.chunks_mut(8) {
                let bytes = random.number().to_le_bytes();
                word.copy_from_slice(&bytes[..word.len()]);
            }
            op.args = args;
        }
    }
    op
}

#[test]
fn random_vectors_do_no_harm() {
    for seed in [11, 24] {
        run(seed);
    }
}

fn run(seed: u64) {
    on_pg(move |pg| async move {
        pg.limits.borrow_mut().object_size = 1 << 16;
        pg.limits.borrow_mut().skip_data_digest = false;
        let clients = [client(1), client(2)];
        let mut random = Random(seed);
        let mut seq = 0;
        let mut done = 0;
        for step in 0..4000 {
            let vector: Vec<OsdOp> =
                (0..1 + random.below(4)).map(|_| random_op(&mut random)).collect();
            let Ok(info) = OpInfo::of(&vector, 0, &ClassLists::default()) else { continue };
            seq += u64::from(random.below(8) == 0);
            let snaps = (1..=seq).rev().take(3).collect();
            let name = ["a", "b", "c"][random.below(3) as usize];
            let mut request =
                pg.request_of(&clients[random.below(2) as usize].client, name, vec![]);
            request.snapc = SnapContext { seq, snaps };
            request.oid.snap = match random.below(6) {
                0 if !info.may_write() => random.below(seq + 2),
                _ => NOSNAP,
            };
            request.ops = vector;
            request.info = info;
            if request.info.pg_op {
                execute_pg_op(&pg.as_pg(), &request).await;
                continue;
            }
            let ops = request.ops.len();
            let reply = pg.run(request).await;
            assert_eq!(reply.ops.len(), ops);
            done += u64::from(reply.result >= 0);
            if random.below(50) == 0 {
                pg.contexts.clear();
            }
            if step % 20 == 0 {
                pg.check_stats().await;
                pg.check_digests().await;
            }
        }
        assert!(done > 600, "{done}");
    });
}
