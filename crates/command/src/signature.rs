//! Command signatures: what a command is called, what it takes, who may call it; and the JSON
//! by which `ceph` learns them (`get_command_descriptions`).
//!
//! A signature is written in Ceph's compact form: words, and arguments as
//! `name=pool,type=CephPoolname,n=N,req=false,range=0|100`.

use crate::{Format, Formatter};

/// Not forwarded between monitors.
pub const FLAG_NOFORWARD: u64 = 1;
/// Gone; answers that it is.
pub const FLAG_OBSOLETE: u64 = 2;
/// Still there, but better not used.
pub const FLAG_DEPRECATED: u64 = 4;
/// Answered by the manager.
pub const FLAG_MGR: u64 = 8;
/// The tool asks again and again.
pub const FLAG_POLL: u64 = 16;
/// Left out of help.
pub const FLAG_HIDDEN: u64 = 32;

/// The kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Text.
    String,
    /// One of several words.
    Choices,
    /// `--flag`.
    Bool,
    /// `pool.seed`.
    Pgid,
    /// `osd.N`, `N`, `all`, `any` or `*`.
    OsdName,
    /// `type.id`.
    Name,
    /// A pool's name.
    Poolname,
    /// An object's name.
    Objectname,
    /// `address:port/nonce`.
    EntityAddr,
    /// `address:port`.
    IpAddr,
    /// A UUID.
    Uuid,
    /// Text of a kind only the tool knows.
    Other,
}

/// One argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    /// Its key in the command's JSON.
    pub name: String,
    /// Its kind.
    pub kind: ArgType,
    /// Whether it may be repeated.
    pub many: bool,
    /// Whether it may not be left out.
    pub required: bool,
    /// The words of a choice, or empty.
    pub choices: Vec<String>,
    /// Smallest and largest value.
    pub range: Option<(f64, Option<f64>)>,
    /// The descriptors as written, in alphabetical order, for the descriptions.
    fields: Vec<(String, String)>,
}

/// A word or an argument of a signature.
#[derive(Debug, Clone, PartialEq)]
pub enum SigPart {
    /// A fixed word.
    Word(String),
    /// An argument.
    Arg(Arg),
}

/// One command.
#[derive(Debug, Clone, PartialEq)]
pub struct Signature {
    /// Words and arguments in order.
    pub parts: Vec<SigPart>,
    /// One sentence for people.
    pub help: String,
    /// The service whose caps it needs ("osd", "mon", ...).
    pub module: String,
    /// Needed permission: letters of "rwx".
    pub perm: String,
    /// `FLAG_*`.
    pub flags: u64,
}

impl Signature {
    /// Parses the compact form.
    pub fn new(sig: &str, help: &str, module: &str, perm: &str, flags: u64) -> Signature {
        let parts = sig
            .split_ascii_whitespace()
            .map(|part| match part.contains("name=") {
                true => SigPart::Arg(Arg::new(part)),
                false => SigPart::Word(part.to_string()),
            })
            .collect();
        Signature {
            parts,
            help: help.to_string(),
            module: module.to_string(),
            perm: perm.to_string(),
            flags,
        }
    }

    /// The words before the first argument: the command's `prefix`.
    pub fn prefix(&self) -> String {
        let mut prefix = String::new();
        for part in &self.parts {
            match part {
                SigPart::Word(word) => {
                    if !prefix.is_empty() {
                        prefix.push(' ');
                    }
                    prefix.push_str(word);
                }
                SigPart::Arg(_) => break,
            }
        }
        prefix
    }

    /// The arguments.
    pub fn args(&self) -> impl Iterator<Item = &Arg> {
        self.parts.iter().filter_map(|p| match p {
            SigPart::Arg(arg) => Some(arg),
            SigPart::Word(_) => None,
        })
    }

    /// Whether the flag is set.
    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Writes the description; `full` adds module, permission and flags (monitor and manager,
    /// not OSD).
    pub fn dump(&self, f: &mut Formatter, name: &str, full: bool) {
        f.object(name, |f| {
            f.array("sig", |f| {
                for part in &self.parts {
                    match part {
                        SigPart::Word(word) => f.dump_string("arg", word),
                        SigPart::Arg(arg) => f.object("arg", |f| {
                            for (key, value) in &arg.fields {
                                f.dump_string(key, value);
                            }
                        }),
                    }
                }
            });
            f.dump_string("help", &self.help);
            if full {
                f.dump_string("module", &self.module);
                f.dump_string("perm", &self.perm);
                f.dump_unsigned("flags", self.flags);
            }
        });
    }
}

impl Arg {
    fn new(text: &str) -> Arg {
        let mut fields: Vec<(String, String)> = text
            .split(',')
            .filter_map(|field| field.split_once('='))
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        fields.sort();
        fields.dedup_by(|a, b| a.0 == b.0);
        let field = |key: &str| fields.iter().find(|f| f.0 == key).map(|f| f.1.as_str());
        let kind = match field("type").unwrap_or("CephString") {
            "CephInt" => ArgType::Int,
            "CephFloat" => ArgType::Float,
            "CephString" => ArgType::String,
            "CephChoices" => ArgType::Choices,
            "CephBool" => ArgType::Bool,
            "CephPgid" => ArgType::Pgid,
            "CephOsdName" => ArgType::OsdName,
            "CephName" => ArgType::Name,
            "CephPoolname" => ArgType::Poolname,
            "CephObjectname" => ArgType::Objectname,
            "CephEntityAddr" => ArgType::EntityAddr,
            "CephIPAddr" => ArgType::IpAddr,
            "CephUUID" => ArgType::Uuid,
            _ => ArgType::Other,
        };
        let range = field("range").map(|text| {
            let (low, high) = text.split_once('|').unwrap_or((text, ""));
            (low.parse().unwrap_or(f64::MIN), high.parse().ok())
        });
        let arg = Arg {
            name: field("name").unwrap_or_default().to_string(),
            kind,
            many: field("n") == Some("N"),
            // Whatever is not plainly true is no: one of Ceph's own signatures has it misspelt.
            required: matches!(field("req"), None | Some("true" | "True")),
            choices: field("strings")
                .map(|s| s.split('|').map(str::to_string).collect())
                .unwrap_or_default(),
            range,
            fields: Vec::new(),
        };
        // A flag is never required, and says so in the descriptions.
        if kind == ArgType::Bool && field("req").is_none() {
            fields.push(("req".to_string(), "false".to_string()));
            fields.sort();
            return Arg { required: false, fields, ..arg };
        }
        Arg { fields, ..arg }
    }
}

/// All commands of a daemon.
#[derive(Debug, Clone, Default)]
pub struct CommandTable {
    commands: Vec<Signature>,
}

impl CommandTable {
    /// An empty table.
    pub fn new() -> CommandTable {
        CommandTable::default()
    }

    /// Adds a command.
    pub fn push(&mut self, command: Signature) {
        self.commands.push(command);
    }

    /// All commands, in the order added.
    pub fn iter(&self) -> impl Iterator<Item = &Signature> {
        self.commands.iter()
    }

    /// The command whose leading words are exactly `prefix`.
    pub fn find(&self, prefix: &str) -> Option<&Signature> {
        self.commands.iter().find(|c| c.prefix() == prefix)
    }

    /// The answer to `get_command_descriptions`; `full` as in [`Signature::dump`].
    pub fn descriptions(&self, format: Format, full: bool) -> String {
        let mut f = Formatter::new(format);
        f.open_object_section("command_descriptions");
        for (i, command) in self.commands.iter().enumerate() {
            command.dump(&mut f, &format!("cmd{i:03}"), full);
        }
        f.close_section();
        f.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_their_fields_in_alphabetical_order() {
        let mut table = CommandTable::new();
        table.push(Signature::new(
            "pg dump name=dumpcontents,type=CephChoices,strings=all|sum,n=N,req=false",
            "help",
            "pg",
            "r",
            FLAG_MGR,
        ));
        assert_eq!(
            table.descriptions(Format::Json, true),
            r#"{"cmd000":{"sig":["pg","dump",{"n":"N","name":"dumpcontents","req":"false","strings":"all|sum","type":"CephChoices"}],"help":"help","module":"pg","perm":"r","flags":8}}"#
        );
        assert_eq!(table.find("pg dump").map(|c| c.perm.as_str()), Some("r"));
    }
}
