//! Signatures: what is called how, and by whom. The interface is Ceph's
//! (`src/mgr/MgrCommands.h` and the modules at v16.2), the help is ours.

use command::{CommandTable, Signature};

/// Signature, help, service, permission.
pub(crate) const TABLE: &[[&str; 4]] = &[
    ["pg stat", "count PGs by state", "pg", "r"],
];

/// All commands.
pub(crate) fn table() -> CommandTable {
    let mut all = CommandTable::new();
    for [sig, help, module, perm] in TABLE {
        all.push(Signature::new(sig, help, module, perm, 0));
    }
    all
}
