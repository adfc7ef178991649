//! What a client's capabilities let it do.

use auth::caps::{ClassCall, OsdRequest};
use maps::PgPool;

use super::session::Session;
use crate::ops::Request;

/// Whether the session may send this.
pub(super) fn may(session: &Session, request: &Request, pool: &PgPool, name: &str) -> bool {
    if session.caps.is_allow_all() {
        return true;
    }
    let rights = request.info.rights();
    let classes: Vec<ClassCall<'_>> = rights
        .classes
        .iter()
        .map(|c| ClassCall {
            class: c.class,
            method: c.method,
            read: c.read,
            write: c.write,
            allow_listed: c.allowed,
        })
        .collect();
    let oid = &request.oid;
    session.caps.is_capable(&OsdRequest {
        pool: name,
        namespace: &oid.namespace,
        app_metadata: &pool.application_metadata,
        object: if oid.key.is_empty() { &oid.name } else { &oid.key },
        read: rights.read,
        write: rights.write,
        classes: &classes,
        addr: &session.con.peer_socket_addr(),
    })
}
