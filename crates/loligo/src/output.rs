//! What commands print. A reader that has seen enough (`loligo ... | head`) closes the pipe:
//! a command that only shows something ends there, without a word and with the exit code a shell
//! knows for that; one that does something goes on and says no more.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// What a shell shows for a process that SIGPIPE ended.
const EXIT_CLOSED_PIPE: i32 = 128 + libc::SIGPIPE;

/// Writes text that is all the command is for.
pub(crate) fn show_text(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(e) = out.write_fmt(text).and_then(|()| out.flush()) {
        let code = exit_code(&e);
        if code != EXIT_CLOSED_PIPE {
            eprintln!("loligo: cannot write the output: {e}");
        }
        std::process::exit(code);
    }
}

fn exit_code(error: &io::Error) -> i32 {
    match error.kind() {
        ErrorKind::BrokenPipe => EXIT_CLOSED_PIPE,
        _ => 1,
    }
}

/// Writes text about work that goes on whether somebody reads it or not.
pub(crate) fn tell_text(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}

/// [`show_text`] with a line's end.
macro_rules! show {
    ($($text:tt)*) => { $crate::output::show_text(format_args!("{}\n", format_args!($($text)*))) };
}

/// [`tell_text`] with a line's end.
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::tell_text(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {show, tell};
