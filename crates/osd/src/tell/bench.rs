//! `bench`: writes through the store as fast as it goes, and says how fast that was
//! (`OSD::asok_command` in `src/osd/OSD.cc` at v16.2).
//!
//! Bounded as in Ceph: a block by `osd_bench_max_block_size`, the total by what a slow device
//! could write in `osd_bench_duration` seconds; and by the space there is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use command::{BadArgument, CommandMap, CommandReply, Formatter, format_bytes};
use env::LocalFuture;
use store::{CollId, StoreError, Transaction};
use types::{Errno, GhObject, HObject};

use super::{Target, refused};

const DEFAULT_COUNT: i64 = 1 << 30;
const DEFAULT_SIZE: i64 = 4 << 20;
/// Blocks smaller than this are limited by how many a second, larger ones by bytes a second.
const SMALL: u64 = 1 << 20;
/// Writes under way: at most so many, and so many bytes.
const OPEN_MAX: usize = 256;
const OPEN_BYTES_MAX: u64 = 64 << 20;
/// Objects removed in one transaction.
const REMOVE_BATCH: usize = 64;
/// Objects written to at most when their number is given.
const OBJECT_NUM_MAX: u64 = 1 << 20;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// Bytes to write.
    count: u64,
    /// Bytes of one write.
    block: u64,
    /// Size and number of objects that are overwritten at random; otherwise each write makes one.
    objects: Option<(u64, u64)>,
}

impl Plan {
    fn of(
        target: &dyn Target,
        map: &CommandMap,
    ) -> Result<Result<Plan, CommandReply>, BadArgument> {
        let wanted = [
            ("count", DEFAULT_COUNT),
            ("size", DEFAULT_SIZE),
            ("object_size", 0),
            ("object_num", 0),
        ];
        let mut numbers = [0; 4];
        for (number, (name, default)) in numbers.iter_mut().zip(wanted) {
            match u64::try_from(map.opt_int(name)?.unwrap_or(default)) {
                Ok(n) => *number = n,
                Err(_) => {
                    return Ok(Err(refused(Errno::EINVAL, format!("'{name}' is negative"))));
                }
            }
        }
        let [count, size, object_size, object_num] = numbers;
        Ok(Plan::checked(target, count, size, object_size, object_num))
    }

    fn checked(
        target: &dyn Target,
        count: u64,
        size: u64,
        object_size: u64,
        object_num: u64,
    ) -> Result<Plan, CommandReply> {
        let config = target.config();
        let einval = |text: String| Err(refused(Errno::EINVAL, text));
        let max_block = config.uint("osd_bench_max_block_size");
        if size == 0 || object_num > OBJECT_NUM_MAX {
            return einval("a block of no bytes, or too many objects".to_owned());
        }
        if size > max_block {
            return einval(format!(
                "a block has at most {} ('osd_bench_max_block_size')",
                format_bytes(max_block)
            ));
        }
        let duration = config.uint("osd_bench_duration");
        let (max_count, option) = if size < SMALL {
            let option = "osd_bench_small_size_max_iops";
            (size.saturating_mul(duration).saturating_mul(config.uint(option)), option)
        } else {
            let option = "osd_bench_large_size_max_throughput";
            (duration.saturating_mul(config.uint(option)), option)
        };
        if count > max_count {
            return einval(format!(
                "'count' values greater than {max_count} for a block size of {} could keep the \
                 OSD busy for longer than {duration} seconds; adjust '{option}' to allow more",
                format_bytes(size)
            ));
        }
        let fixed = object_size > 0 && object_num > 0;
        Ok(Plan {
            count,
            block: if object_size > 0 { size.min(object_size) } else { size },
            objects: fixed.then_some((object_size, object_num)),
        })
    }

    /// Bytes the store must have room for.
    fn space(&self) -> u64 {
        self.objects.map_or(self.count, |(size, number)| size.saturating_mul(number))
    }
}

fn object(number: u64) -> GhObject {
    GhObject::from(HObject {
        name: format!("disk_bw_test_{number}").into(),
        pool: -1,
        ..HObject::default()
    })
}

/// Writes of one run.
struct Run<'a> {
    target: &'a dyn Target,
    block: u64,
    data: Bytes,
    open: VecDeque<LocalFuture<Result<(), StoreError>>>,
    made: BTreeSet<u64>,
}

impl Run<'_> {
    async fn write(&mut self, number: u64, offset: u64, len: u64) -> Result<(), StoreError> {
        while self.open.len() >= OPEN_MAX
            || self.open.len() as u64 * self.block > OPEN_BYTES_MAX && !self.open.is_empty()
        {
            self.settle_one().await?;
        }
        let mut t = Transaction::new();
        self.made.insert(number);
        t.write(&CollId::Meta, &object(number), offset, self.data.slice(..len as usize));
        self.open.push_back(self.target.store().submit(t));
        Ok(())
    }

    async fn settle_one(&mut self) -> Result<(), StoreError> {
        match self.open.pop_front() {
            Some(write) => write.await,
            None => Ok(()),
        }
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        while !self.open.is_empty() {
            self.settle_one().await?;
        }
        Ok(())
    }

    async fn prefill(&mut self, size: u64, number: u64) -> Result<(), StoreError> {
        for object in 0..number {
            let mut offset = 0;
            while offset < size {
                let len = self.block.min(size - offset);
                self.write(object, offset, len).await?;
                offset += len;
            }
        }
        self.settle().await
    }

    async fn measure(&mut self, plan: &Plan) -> Result<Duration, StoreError> {
        let env = self.target.env().clone();
        let start = env.now();
        let mut written = 0;
        while written < plan.count {
            let (number, offset) = match plan.objects {
                Some((size, number)) => {
                    (env.random_u64() % number, env.random_u64() % (size / self.block) * self.block)
                }
                None => (written, 0),
            };
            self.write(number, offset, self.block).await?;
            written += self.block;
        }
        self.settle().await?;
        Ok(env.now().saturating_sub(start))
    }

    async fn clean_up(&mut self) -> Result<(), StoreError> {
        let made: Vec<u64> = std::mem::take(&mut self.made).into_iter().collect();
        for batch in made.chunks(REMOVE_BATCH) {
            let mut t = Transaction::new();
            for number in batch {
                t.remove(&CollId::Meta, &object(*number));
            }
            self.target.store().submit(t).await?;
        }
        Ok(())
    }
}

pub(super) async fn run(
    target: &dyn Target,
    map: &CommandMap,
) -> Result<CommandReply, BadArgument> {
    let plan = match Plan::of(target, map)? {
        Ok(plan) => plan,
        Err(reply) => return Ok(reply),
    };
    let elapsed = match measure(target, &plan).await {
        Ok(Some(elapsed)) => elapsed,
        Ok(None) => {
            return Ok(refused(Errno::ENOSPC, "not enough space for this benchmark"));
        }
        Err(error) => return Ok(refused(Errno::EIO, format!("the store fails: {error}"))),
    };
    // A clock too coarse to see it is no reason to divide by zero.
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let rate = plan.count as f64 / seconds;
    let mut f = Formatter::new(map.format());
    f.object("osd_bench_results", |f| {
        f.dump_unsigned("bytes_written", plan.count);
        f.dump_unsigned("blocksize", plan.block);
        f.dump_float("elapsed_sec", elapsed.as_secs_f64());
        f.dump_float("bytes_per_sec", rate);
        f.dump_float("iops", rate / plan.block as f64);
    });
    Ok(CommandReply::formatted(f))
}

/// How long it took; `None` if there is not the room.
async fn measure(target: &dyn Target, plan: &Plan) -> Result<Option<Duration>, StoreError> {
    if target.store().statfs().await?.available < plan.space() {
        return Ok(None);
    }
    let mut byte = [0];
    target.env().fill_random(&mut byte);
    let mut run = Run {
        target,
        block: plan.block,
        data: Bytes::from(vec![byte[0]; plan.block as usize]),
        open: VecDeque::new(),
        made: BTreeSet::new(),
    };
    let outcome = async {
        if let Some((size, number)) = plan.objects {
            run.prefill(size, number).await?;
        }
        run.measure(plan).await
    }
    .await;
    // Also after a failure: what was written must not stay.
    run.settle().await.and(run.clean_up().await)?;
    outcome.map(Some)
}
