//! Answers to commands that changed something, so that one which is sent again is not done again.
//!
//! A client repeats a command when its monitor is gone, and monitors repeat it when the leader is.
//! The last one may have been committed all the same. What was answered is therefore committed
//! with the change itself, under the client's number and the command's.

use std::collections::{BTreeMap, VecDeque};

use bstr::BString;
use bytes::Bytes;
use command::CommandReply;
use denc::Denc;
use store::Kv;

use crate::core::{LoadError, MonCore};
use crate::layout::{self, ANSWERED};

/// Answers remembered: more than clients repeat after an election.
const ANSWERS_MAX: usize = 1000;
/// Answers with more output are not remembered.
const OUTPUT_MAX: usize = 64 << 10;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
struct Answer {
    global_id: u64,
    tid: u64,
    /// Checksum of the command: numbers alone are the client's promise.
    crc: u32,
    outs: String,
    outb: Bytes,
}

/// State of the service.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    last: u64,
    /// At most [`ANSWERS_MAX`].
    answers: VecDeque<(u64, Answer)>,
    place: BTreeMap<(u64, u64), u64>,
}

/// Checksum of a command.
pub(crate) fn command_crc(cmd: &[BString]) -> u32 {
    cmd.iter().fold(u32::MAX, |crc, part| types::crc::crc32c(crc, part))
}

impl Answered {
    pub(crate) fn load(kv: &dyn Kv) -> Result<Answered, LoadError> {
        let mut all = Answered::default();
        for (key, value) in layout::all(kv, ANSWERED)? {
            let what = || format!("{ANSWERED}/{key}");
            let number = u64::from_str_radix(&key, 16)
                .map_err(|_| LoadError::Inconsistent { what: what() })?;
            let answer = Answer::from_bytes(&value)
                .map_err(|error| LoadError::Decode { what: what(), error })?;
            all.push(number, answer);
        }
        Ok(all)
    }

    fn push(&mut self, number: u64, answer: Answer) {
        self.last = number;
        self.place.insert((answer.global_id, answer.tid), number);
        self.answers.push_back((number, answer));
    }
}

impl MonCore {
    /// What a command was answered before.
    pub(crate) fn answer_before(&self, global_id: u64, tid: u64, crc: u32) -> Option<CommandReply> {
        let number = *self.answered.place.get(&(global_id, tid))?;
        let at = self.answered.answers.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        let (_, answer) = self.answered.answers.get(at)?;
        (answer.crc == crc).then(|| CommandReply {
            outs: answer.outs.clone(),
            outb: answer.outb.clone(),
            ..CommandReply::default()
        })
    }

    /// Remembers the answer to a command that succeeded and changed something.
    pub(crate) fn remember_answer(
        &mut self,
        global_id: u64,
        tid: u64,
        crc: u32,
        reply: &CommandReply,
    ) {
        if global_id == 0 || reply.outb.len() > OUTPUT_MAX {
            return;
        }
        let (outs, outb) = (reply.outs.clone(), reply.outb.clone());
        let answer = Answer { global_id, tid, crc, outs, outb };
        let number = self.answered.last + 1;
        let bytes = answer.to_bytes();
        self.batch().put(layout::numbered(ANSWERED, "", number), bytes);
        self.answered.push(number, answer);
        while self.answered.answers.len() > ANSWERS_MAX {
            let Some((oldest, answer)) = self.answered.answers.pop_front() else { break };
            let key = (answer.global_id, answer.tid);
            if self.answered.place.get(&key) == Some(&oldest) {
                self.answered.place.remove(&key);
            }
            self.batch().delete(layout::numbered(ANSWERED, "", oldest));
        }
    }
}
