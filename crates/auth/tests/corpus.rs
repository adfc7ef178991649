//! This crate's types against golden encodings of Ceph 16.2.0.

use auth::caps::MonCap;
use auth::cephx::{
    Authenticate, Authorize, AuthorizeChallenge, AuthorizeReply, ChallengeBlob, ResponseHeader,
    ServerChallenge, ServiceTicketRequest,
};
use auth::{
    AuthCapsInfo, AuthTicket, CryptoKey, EntityAuth, ExpiringCryptoKey, KeyIncrement,
    KeyServerData, RotatingSecrets, ServiceTicket, ServiceTicketInfo, TicketBlob,
};

#[test]
fn golden_encodings() {
    corpus::check_all! {
        "AuthCapsInfo" => AuthCapsInfo,
        "AuthTicket" => AuthTicket,
        "CryptoKey" => CryptoKey,
        "EntityAuth" => EntityAuth,
        "ExpiringCryptoKey" => ExpiringCryptoKey,
        "RotatingSecrets" => RotatingSecrets,
        "KeyServer" => KeyServerData,
        "KeyServerData" => KeyServerData,
        "KeyServerData::Incremental" => KeyIncrement,
        "CephXAuthenticate" => Authenticate,
        "CephXAuthorize" => Authorize,
        "CephXAuthorizeChallenge" => AuthorizeChallenge,
        "CephXAuthorizeReply" => AuthorizeReply,
        "CephXChallengeBlob" => ChallengeBlob,
        "CephXResponseHeader" => ResponseHeader,
        "CephXRequestHeader" => u16,
        "CephXServerChallenge" => ServerChallenge,
        "CephXServiceTicket" => ServiceTicket,
        "CephXServiceTicketInfo" => ServiceTicketInfo,
        "CephXServiceTicketRequest" => ServiceTicketRequest,
        "MonCap" => MonCap,
        "CephXTicketBlob" => TicketBlob,
    }
}
