//! Method none: names are believed (src/auth/none/ at v16.2).

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use types::entity::AuthEntityName;

use crate::AuthError;
use crate::ticket::check_version;

/// Payload of AUTH_REQUEST to a service.
pub fn authorizer(name: &AuthEntityName, global_id: u64) -> Bytes {
    let mut w = Writer::new();
    w.u8(1);
    name.encode(&mut w);
    w.u64(global_id);
    w.into_bytes()
}

/// Reads what [`authorizer`] wrote.
pub fn open_authorizer(payload: &Bytes) -> Result<(AuthEntityName, u64), AuthError> {
    let mut r = Reader::new(payload);
    check_version(&mut r, "none authorizer version", 1)?;
    Ok((r.get()?, r.u64()?))
}
