//! Golden objects of Ceph's public object corpus (16.2.0): each decodes whole and encodes to the
//! same bytes; no cut of it panics. The corpus' folder is taken from `CEPH_CORPUS`; without it the
//! test says so and passes.

use std::fs;
use std::path::PathBuf;

use auth::caps::MonCap;
use auth::cephx::{
    Authenticate, Authorize, AuthorizeChallenge, AuthorizeReply, ChallengeBlob, ResponseHeader,
    ServerChallenge, ServiceTicketRequest,
};
use auth::{
    AuthCapsInfo, AuthTicket, CryptoKey, EntityAuth, ExpiringCryptoKey, KeyIncrement,
    KeyServerData, RotatingSecrets, ServiceTicket, ServiceTicketInfo, TicketBlob,
};
use bytes::Bytes;
use denc::Denc;

fn corpus() -> Option<PathBuf> {
    let dir = std::env::var_os("CEPH_CORPUS").map(PathBuf::from);
    if dir.is_none() {
        eprintln!("CEPH_CORPUS is not set: nothing is checked");
    }
    dir
}

fn check<T: Denc + core::fmt::Debug>(name: &str) {
    let Some(dir) = corpus() else { return };
    let mut seen = 0;
    for file in fs::read_dir(dir.join(name)).unwrap() {
        let path = file.unwrap().path();
        let bytes = Bytes::from(fs::read(&path).unwrap());
        let value = T::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        assert_eq!(value.to_bytes(), bytes, "{path:?}: {value:?}");
        for cut in 0..bytes.len() {
            let _ = T::from_bytes(&bytes.slice(..cut));
        }
        seen += 1;
    }
    assert!(seen > 0, "{name}: no objects");
}

macro_rules! golden {
    ($($test:ident $type:ty = $name:literal;)*) => {$(
        #[test]
        fn $test() {
            check::<$type>($name);
        }
    )*};
}

golden! {
    auth_caps_info AuthCapsInfo = "AuthCapsInfo";
    auth_ticket AuthTicket = "AuthTicket";
    crypto_key CryptoKey = "CryptoKey";
    entity_auth EntityAuth = "EntityAuth";
    expiring_key ExpiringCryptoKey = "ExpiringCryptoKey";
    rotating_secrets RotatingSecrets = "RotatingSecrets";
    key_server KeyServerData = "KeyServer";
    key_server_data KeyServerData = "KeyServerData";
    key_increment KeyIncrement = "KeyServerData::Incremental";
    authenticate Authenticate = "CephXAuthenticate";
    authorize Authorize = "CephXAuthorize";
    authorize_challenge AuthorizeChallenge = "CephXAuthorizeChallenge";
    authorize_reply AuthorizeReply = "CephXAuthorizeReply";
    challenge_blob ChallengeBlob = "CephXChallengeBlob";
    response_header ResponseHeader = "CephXResponseHeader";
    request_header u16 = "CephXRequestHeader";
    server_challenge ServerChallenge = "CephXServerChallenge";
    service_ticket ServiceTicket = "CephXServiceTicket";
    service_ticket_info ServiceTicketInfo = "CephXServiceTicketInfo";
    service_ticket_request ServiceTicketRequest = "CephXServiceTicketRequest";
    mon_cap MonCap = "MonCap";
    ticket_blob TicketBlob = "CephXTicketBlob";
}
