//! Commands that every daemon answers about its process alone, by `ceph tell` and on its admin socket
//! (`src/common/admin_socket.cc`, `src/common/ceph_context.cc` at v16.2). Those on options
//! and the log are in the crate `config`, those on counters in `perf`.

use crate::{CommandMap, CommandReply, CommandTable, Formatter, Signature, version};

/// The version of the admin socket's protocol: commands are JSON.
const PROTOCOL: &str = "2";

/// Signatures of the commands answered here; the one without a help tells the protocol's version.
pub fn admin_signatures() -> Vec<Signature> {
    [
        ("0", ""),
        ("get_command_descriptions", "list commands with their arguments"),
        ("git_version", "show the build"),
        ("help", "list commands with a line about each"),
        ("version", "show the version"),
    ]
    .into_iter()
    .map(|(sig, help)| Signature::new(sig, help, "", "", 0))
    .collect()
}

/// Answers `heap ...` of an OSD or a monitor as Ceph does where it runs without tcmalloc, as we do.
pub fn heap() -> CommandReply {
    let text = "could not issue heap profiler command -- not using tcmalloc!";
    CommandReply::error(EOPNOTSUPP, text)
}

const EOPNOTSUPP: i32 = 95;

/// Answers such a command; `table` has all that the daemon answers. `None`: it is none of these.
pub fn admin_command(map: &CommandMap, table: &CommandTable) -> Option<CommandReply> {
    let mut f = Formatter::new(map.format());
    match map.prefix() {
        "0" => return Some(CommandReply::data(PROTOCOL)),
        "get_command_descriptions" => {
            return Some(CommandReply::data(table.descriptions(map.format(), false)));
        }
        "git_version" => f.object("version", |f| f.dump_string("git_version", version::build())),
        "help" => f.object("help", |f| {
            for command in table.iter().filter(|command| !command.help.is_empty()) {
                f.dump_string(&command.prefix(), &command.help);
            }
        }),
        "version" => f.object("version", |f| {
            f.dump_string("version", version::SHORT);
            f.dump_string("release", version::RELEASE);
            f.dump_string("release_type", "stable");
        }),
        _ => return None,
    }
    Some(CommandReply::formatted(f))
}
