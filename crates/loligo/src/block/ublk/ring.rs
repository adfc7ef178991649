//! Commands to the driver as futures: one io_uring whose submissions have 128 bytes, beside the
//! runtime's own, which tells when there are completions.
//!
//! Commands gather while tasks run and enter the kernel together. The kernel works on control
//! commands in threads of its own, so that none keeps this thread from serving requests: START_DEV
//! ends only after the kernel has looked for partitions, with reads that we answer meanwhile.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use env::Env;
use env::sync::{Sender, oneshot};
use io_uring::cqueue;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, opcode, types::Fd};

/// Submissions gathered before the kernel is entered early.
const SUBMISSIONS: u32 = 512;
/// The kernel's limit of completions.
const COMPLETIONS_LIMIT: usize = 65536;

/// The ring.
pub(super) struct Ring {
    env: Env,
    ring: RefCell<IoUring<Entry128>>,
    /// Who waits. Bound: the commands under way, one a tag and one of control.
    commands: RefCell<Commands>,
    submitting: Cell<bool>,
}

#[derive(Default)]
struct Commands {
    slots: Vec<Option<Command>>,
    free: Vec<usize>,
}

struct Command {
    done: Sender<(i32, Box<[u8]>)>,
    /// What the kernel reads and writes until the command has completed.
    buffer: Box<[u8]>,
    /// Keeps the descriptor open.
    _file: Rc<dyn AsRawFd>,
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.borrow().as_raw_fd()
    }
}

impl Ring {
    /// A ring for so many commands at a time.
    pub(super) fn new(env: &Env, commands: usize) -> io::Result<Rc<Ring>> {
        let completions = commands.max(SUBMISSIONS as usize).next_power_of_two();
        let ring = IoUring::<Entry128>::builder()
            .setup_cqsize(completions.min(COMPLETIONS_LIMIT) as u32)
            .build(SUBMISSIONS)?;
        let ring = Rc::new(Ring {
            env: env.clone(),
            ring: RefCell::new(ring),
            commands: RefCell::default(),
            submitting: Cell::new(false),
        });
        let waiting = ring.clone();
        ring.env.go(async move {
            while waiting.env.readable(waiting.clone()).await.is_ok() {
                waiting.reap();
            }
            tracing::error!("the completions of an io_uring cannot be awaited");
        });
        Ok(ring)
    }

    /// Gives a command to `file`'s driver: its result as the kernel gave it, and the buffer back.
    /// `fill` makes the command's own bytes; it may put the buffer's address there, and no other.
    pub(super) fn command<F: FnOnce(&mut [u8]) -> [u8; 80]>(
        self: &Rc<Self>,
        file: Rc<dyn AsRawFd>,
        op: u32,
        mut buffer: Box<[u8]>,
        fill: F,
    ) -> impl Future<Output = (i32, Box<[u8]>)> + use<F> {
        let cmd = fill(&mut buffer);
        let entry = opcode::UringCmd80::new(Fd(file.as_raw_fd()), op).cmd(cmd).build();
        let (done, receiver) = oneshot();
        let slot = self.commands.borrow_mut().add(Command { done, buffer, _file: file });
        let entry = entry.user_data(slot as u64);
        // SAFETY: what the entry points to is the buffer, on the heap, which the slot owns until
        // the completion; the slot keeps the descriptor open, too. A ring that goes before leaks
        // both (`drop`).
        while unsafe { self.ring.borrow_mut().submission().push(&entry) }.is_err() {
            self.submit();
        }
        if !self.submitting.replace(true) {
            // After the tasks that are ready now: what they ask for goes along.
            let ring = self.clone();
            self.env.go(async move {
                ring.submitting.set(false);
                ring.submit();
            });
        }
        async move {
            // A ring ends after its commands, or with the process.
            receiver.await.unwrap_or((-libc::ECANCELED, Box::default()))
        }
    }

    fn submit(&self) {
        loop {
            let entered = self.ring.borrow().submit();
            match entered.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) => return,
                // Interrupted; completions have to be taken first.
                Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => self.reap(),
                Err((_, error)) => {
                    tracing::error!("io_uring takes no commands: {error}");
                    return;
                }
            }
        }
    }

    /// Takes the completions and wakes who waits for them.
    fn reap(&self) {
        let mut ring = self.ring.borrow_mut();
        for entry in ring.completion() {
            let entry: cqueue::Entry = entry;
            let command = self.commands.borrow_mut().take(entry.user_data());
            if let Some(command) = command {
                command.done.send((entry.result(), command.buffer));
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to the buffers of commands under way: never freed.
        std::mem::take(self.commands.get_mut()).slots.into_iter().for_each(std::mem::forget);
    }
}

impl Commands {
    fn add(&mut self, command: Command) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(command);
        slot
    }

    fn take(&mut self, slot: u64) -> Option<Command> {
        let slot = usize::try_from(slot).ok()?;
        let command = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(command)
    }
}

/// The kernel's answer as a result.
pub(super) fn outcome(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A file that knows no commands refuses them; their slots and buffers come back.
    #[test]
    fn refused_commands_end_with_their_buffers() {
        let Ok(runtime) = env::real::Runtime::on(env::real::Reactors::Uring) else {
            eprintln!("not tried: io_uring is refused here");
            return;
        };
        runtime.block_on(|env: Env| async move {
            let ring = Ring::new(&env, 1024).unwrap();
            let file: Rc<dyn AsRawFd> = Rc::new(File::open("/proc/self/exe").unwrap());
            for round in 0..3 {
                let commands = (0..1000u16).map(|n| {
                    let buffer = n.to_ne_bytes().to_vec().into_boxed_slice();
                    ring.command(file.clone(), round, buffer, |_| [0; 80])
                });
                let ended = futures_util::future::join_all(commands.collect::<Vec<_>>()).await;
                for (n, (result, buffer)) in ended.into_iter().enumerate() {
                    assert!(outcome(result).is_err(), "{result}");
                    assert_eq!(*buffer, (n as u16).to_ne_bytes());
                }
                assert_eq!(ring.commands.borrow().slots.len(), 1000);
            }
        });
    }
}
