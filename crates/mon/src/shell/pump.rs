//! The log at work: what it wants stored is stored, what it wants sent is sent, what is committed
//! is applied and told to the core; and whoever leads is noticed.

use std::rc::Rc;
use std::time::Duration;

use quorum::{Envelope, MemberId};
use store::KvBatch;
use store::kv::KvOp;

use super::{Shell, read_clocks};
use crate::core::LoadError;
use crate::counters::bump;
use crate::event::Event;
use crate::peer::PeerMessage;
use crate::standing::{Role, Standing};

/// Runs the log until the monitor stops.
pub(super) async fn run(shell: Rc<Shell>) {
    while !shell.stopped.get() {
        // First what may leave at once, so that the others store an entry while we do.
        let early = shell.replica.take_early(shell.env.now());
        if !early.is_empty() {
            shell.send_log(early);
            env::yield_now().await;
        }
        shell.pump_due.set(false);
        if let Err(error) = shell.run_log() {
            return shell.fail(error.to_string());
        }
        if shell.pump_due.get() {
            env::yield_now().await;
            continue;
        }
        let due = shell.replica.raft().wake_at();
        let pause = due.saturating_sub(shell.env.now()).max(Duration::from_millis(1));
        let woken = shell.pump.until(|| shell.pump_due.get() || shell.stopped.get());
        let _ = shell.env.timeout(pause, woken).await;
    }
}

/// Bytes of keys and values.
fn batch_bytes(batch: &KvBatch) -> u64 {
    let bytes = batch.ops.iter().map(|op| match op {
        KvOp::Put(key, value) => key.len() + value.len(),
        KvOp::Delete(key) => key.len(),
        KvOp::DeleteRange(start, end) => start.len() + end.len(),
    });
    bytes.sum::<usize>() as u64
}

impl Shell {
    /// The log has something to do.
    pub(super) fn wake_pump(&self) {
        self.pump_due.set(true);
        self.pump.notify_all();
    }

    /// Everything the log wants done now.
    pub(super) fn run_log(self: &Rc<Shell>) -> Result<(), LoadError> {
        if self.stopped.get() {
            return Ok(());
        }
        // Each round may allow more: votes lead to entries, entries to commits.
        for _ in 0..64 {
            let early = self.replica.take_early(self.env.now());
            self.send_log(early);
            let begun = self.env.now();
            let (after, any) = self.replica.store()?;
            self.count_begin(begun);
            self.count_campaigns();
            self.send_log(after);
            let led = self.role() == Role::Leader;
            let begun = self.env.now();
            let batches = self.replica.apply()?;
            self.count_commits(begun, &batches);
            let applied = !batches.is_empty();
            self.look_around(led, batches)?;
            if !any && !applied {
                break;
            }
        }
        if let Some((from, after)) = self.replica.copy_request(self.env.now()) {
            self.send_peer(from, &PeerMessage::CopyGet { after });
        }
        if self.role() == Role::Leader {
            self.tend_members();
        }
        self.serve_requests();
        Ok(())
    }

    fn count_campaigns(&self) {
        let called = &self.counters.election_call;
        called.set(called.get() + self.replica.raft_mut().take_campaigns());
    }

    fn count_begin(&self, begun: Duration) {
        let paxos = &self.counters.paxos;
        let (entries, bytes) = self.replica.take_stored();
        if entries > 0 {
            paxos.begin.set(paxos.begin.get() + entries);
            paxos.begin_bytes.add(bytes);
            paxos.begin_latency.add(self.env.now().saturating_sub(begun));
        }
    }

    fn count_commits(&self, begun: Duration, batches: &[KvBatch]) {
        let paxos = &self.counters.paxos;
        for batch in batches {
            bump(&paxos.commit);
            paxos.commit_keys.add(batch.ops.len() as u64);
            paxos.commit_bytes.add(batch_bytes(batch));
        }
        if !batches.is_empty() {
            paxos.commit_latency.add(self.env.now().saturating_sub(begun));
        }
    }

    fn send_log(&self, messages: Vec<Envelope>) {
        for message in messages {
            let to = message.to;
            if !self.exited.get() && self.is_connected(to) {
                self.send_peer(to, &PeerMessage::Log(message));
            }
        }
    }

    /// Takes note of who leads now, and gives the core what was applied.
    fn look_around(self: &Rc<Shell>, led: bool, batches: Vec<KvBatch>) -> Result<(), LoadError> {
        if !self.replica.is_whole() {
            // The core went with the copy's first piece.
            return Ok(());
        }
        let fresh = self.core.borrow().is_none();
        self.load_core()?;
        let (term, leads, leader) = {
            let raft = self.replica.raft();
            (raft.term(), raft.leads_for_sure(), raft.leader().filter(|id| *id != raft.id()))
        };
        let leads_still = led && leads && self.standing_term() == term;
        if !fresh && !leads_still {
            for batch in &batches {
                self.with_core(|core, now| core.applied(now, batch))?;
            }
        }
        // Whoever was told to be out is so at once, whatever its log knows of a leader.
        let (leads, leader) = match self.exited.get() {
            true => (false, None),
            false => (leads, leader),
        };
        let role = match (leads, leader) {
            (true, _) => Role::Leader,
            (false, Some(_)) => Role::Peon,
            (false, None) => Role::Out,
        };
        self.take_place(role, term, leader)?;
        if fresh || !batches.is_empty() {
            self.note_monmap();
        }
        Ok(())
    }

    pub(super) fn standing_term(&self) -> u64 {
        let core = self.core.borrow();
        core.as_ref().map_or(0, |core| u64::from(core.standing().epoch / 2))
    }

    /// A new place among the monitors, if it is one.
    fn take_place(
        self: &Rc<Shell>,
        role: Role,
        term: u64,
        leader: Option<MemberId>,
    ) -> Result<(), LoadError> {
        let election = u32::try_from(term * 2).unwrap_or(u32::MAX - 1);
        let epoch = match role {
            Role::Out => election.saturating_sub(1),
            _ => election,
        };
        let leader = match role {
            Role::Leader => Some(self.identity.name.clone()),
            _ => leader.and_then(|id| self.name_of(id)),
        };
        let before = match &*self.core.borrow() {
            Some(core) => core.standing().clone(),
            None => return Ok(()),
        };
        if (before.role, before.epoch, &before.leader) == (role, epoch, &leader) {
            return Ok(());
        }
        tracing::info!("now {role:?}, election epoch {epoch}, leader {leader:?}");
        let now = self.env.now();
        match role {
            Role::Out => {
                let since = self.out_since.get().unwrap_or(now);
                self.out_since.set(Some(since));
            }
            _ => self.out_since.set(None),
        }
        self.count_place(before.role, role);
        if before.role == Role::Leader {
            self.replica.drop_waiters();
        }
        if !self.replica.raft().is_leader() {
            self.drop_proxies();
        }
        if role == Role::Leader {
            self.begin_rounds();
        }
        let quorum = match role {
            Role::Out => Default::default(),
            Role::Leader => self.members_heard(),
            // Until the leader says.
            Role::Peon => leader.iter().cloned().chain([self.identity.name.clone()]).collect(),
        };
        let standing = Standing { role, epoch, leader, quorum, since: now, ..Standing::default() };
        // Nothing that was asked of the last leader counts any more.
        self.unsend_requests();
        self.with_core(|core, now| core.stand(now, standing))?;
        if role == Role::Peon {
            self.greet_peers();
        }
        Ok(())
    }

    /// A monitor that an operator took out has missed nobody.
    fn count_place(&self, before: Role, role: Role) {
        let paxos = &self.counters.paxos;
        bump(match role {
            Role::Leader => &paxos.start_leader,
            Role::Peon => &paxos.start_peon,
            Role::Out => &paxos.restart,
        });
        match (before, role) {
            (Role::Leader, Role::Out) if !self.exited.get() => bump(&paxos.lease_ack_timeout),
            (Role::Peon, Role::Out) if !self.exited.get() => bump(&paxos.lease_timeout),
            _ => {}
        }
    }

    /// Lets the core do something and performs what it wants.
    pub(super) fn with_core(
        self: &Rc<Shell>,
        what: impl FnOnce(&mut crate::MonCore, crate::Now) -> Result<Vec<crate::Effect>, LoadError>,
    ) -> Result<(), LoadError> {
        let now = read_clocks(&self.env);
        let effects = match &mut *self.core.borrow_mut() {
            Some(core) => what(core, now)?,
            None => return Ok(()),
        };
        // Events that effects lead to wait until all are performed.
        let nested = self.stepping.replace(true);
        self.perform(effects);
        self.stepping.set(nested);
        if !nested && !self.queue.borrow().is_empty() {
            self.feed(Event::Timer);
        }
        Ok(())
    }

    /// Gives up leading, if another monitor can.
    pub(super) async fn hand_over(self: &Rc<Shell>) {
        const PATIENCE: Duration = Duration::from_millis(500);
        let to = self.replica.raft_mut().hand_over(self.env.now());
        if to.is_none() {
            return;
        }
        self.wake_pump();
        let end = self.env.now() + PATIENCE;
        while self.env.now() < end && self.replica.raft().leader().is_none() {
            self.env.sleep(Duration::from_millis(5)).await;
        }
    }

    /// An operator wants this monitor in or out of the quorum. It is out when this returns, in its
    /// own eyes, and as soon as they hear of it in those of the others.
    pub(super) fn set_exited(self: &Rc<Shell>, exited: bool) {
        if exited {
            self.replica.raft_mut().resign(self.env.now());
            // The last it has to say goes out before it falls silent: who shall lead, and what it has
            // stored for the leader; an answer that came after `Left` would count as coming back.
            self.run_log_or_fail();
            self.say_left();
            self.exited.set(true);
            let shell = self.clone();
            self.env.go(async move {
                // Whoever asked for it is told first.
                shell.env.sleep(Duration::from_millis(300)).await;
                if shell.exited.get() {
                    shell.drop_clients();
                }
            });
        } else {
            self.exited.set(false);
        }
        self.run_log_or_fail();
        self.wake_pump();
    }

    fn run_log_or_fail(self: &Rc<Shell>) {
        if let Err(error) = self.run_log() {
            self.fail(error.to_string());
        }
    }
}
