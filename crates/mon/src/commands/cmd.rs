//! One command under way: its arguments, who asks, and how its handler answers.

use bytes::Bytes;
use command::{BadArgument, CommandMap, CommandReply, Format, Formatter};
use store::KvError;
use types::Errno;

use crate::event::SessionId;

/// Bytes of a name that a map holds. Maps are stored whole for each epoch, and sent whole between monitors: a
/// few names as long as a message may be, and no message took the map.
pub(crate) const NAME_LEN_MAX: usize = 4096;

/// A command as its handler gets it.
#[derive(Debug, Clone)]
pub(crate) struct Cmd {
    pub(crate) session: SessionId,
    pub(crate) prefix: String,
    pub(crate) map: CommandMap,
    /// What was given with `-i`.
    pub(crate) input: Bytes,
    pub(crate) format: Format,
}

impl Cmd {
    /// A text argument.
    pub(crate) fn string(&self, key: &str) -> Result<String, Refusal> {
        Ok(self.map.string(key)?)
    }

    /// A text argument that a map will hold.
    pub(crate) fn name(&self, key: &str) -> Result<String, Refusal> {
        let name = self.string(key)?;
        check_name(&name)?;
        Ok(name)
    }

    /// Output in the form asked for: `data` when structured, else `plain`.
    pub(crate) fn output(
        &self,
        data: impl FnOnce(&mut Formatter),
        plain: impl FnOnce() -> String,
    ) -> CommandReply {
        if self.format.is_plain() {
            return CommandReply::data(plain());
        }
        self.structured(data)
    }

    /// Structured output whatever the form asked for (pretty JSON for plain).
    pub(crate) fn structured(&self, data: impl FnOnce(&mut Formatter)) -> CommandReply {
        let mut f = Formatter::new(self.format);
        data(&mut f);
        CommandReply::formatted(f)
    }

    /// The same, but compact JSON for plain: commands of which Ceph prints it so.
    pub(crate) fn compact(&self, data: impl FnOnce(&mut Formatter)) -> CommandReply {
        let format = if self.format.is_plain() { Format::Json } else { self.format };
        let mut f = Formatter::new(format);
        data(&mut f);
        CommandReply::formatted(f)
    }
}

/// How a handler answers.
pub(crate) type CmdResult = Result<CommandReply, Refusal>;

/// A handler's refusal, as the user is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) text: String,
    /// Nothing is answered: the command is handled again after the commit of what is pending.
    pub(crate) not_yet: bool,
}

/// A failure with a text.
pub(crate) fn fail<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(refuse(errno, text))
}

/// A failure as a value.
pub(crate) fn refuse(errno: Errno, text: impl Into<String>) -> Refusal {
    Refusal { errno, text: text.into(), not_yet: false }
}

/// Refuses names that are longer than [`NAME_LEN_MAX`].
pub(crate) fn check_name(name: impl AsRef<[u8]>) -> Result<(), Refusal> {
    match name.as_ref().len() {
        ..=NAME_LEN_MAX => Ok(()),
        len => {
            fail(Errno::EINVAL, format!("a name of {len} bytes is too long (max {NAME_LEN_MAX})"))
        }
    }
}

/// The command has to wait for the commit of what is pending.
pub(crate) fn not_yet<T>() -> Result<T, Refusal> {
    Err(Refusal { not_yet: true, ..refuse(Errno::EAGAIN, "wait for the next epoch") })
}

/// A command that nobody handles, though it is in the table.
pub(crate) fn unhandled() -> CmdResult {
    fail(Errno::EINVAL, "command not known")
}

/// Success with a status text.
pub(crate) fn say(text: impl Into<String>) -> CmdResult {
    Ok(CommandReply::text(text))
}

/// Success without a word.
pub(crate) fn done() -> CmdResult {
    Ok(CommandReply::default())
}

impl From<BadArgument> for Refusal {
    fn from(error: BadArgument) -> Refusal {
        refuse(Errno::EINVAL, error.to_string())
    }
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Refusal {
        refuse(Errno::EIO, error.to_string())
    }
}
