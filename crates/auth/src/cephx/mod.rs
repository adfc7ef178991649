//! cephx: an entity proves to a monitor that it has its key and gets tickets; with a ticket it
//! proves to a service who it is.
//!
//! ```text
//! client                         mon (MonHandler)        client                 service (ServiceHandler)
//!   name, global id  --------->                            authorizer  ------->
//!             <------ challenge                                      <------- challenge
//!   proof, old ticket ------->                             authorizer + challenge ---->
//!             <------ tickets sealed with the key                    <------- nonce + 1, secret
//! ```
//!
//! Facts: src/auth/cephx/CephxProtocol.{h,cc}, CephxServiceHandler.cc, CephxClientHandler.cc at
//! v16.2.

mod authorizer;
mod client;
mod mon;
mod service;
mod wire;

pub use authorizer::{Authorizer, mon_authorizer};
pub use client::{CephxClient, HeldTicket};
pub use mon::{
    Authenticated, GlobalIdStatus, MonHandler, MonRules, StartRequest, answer_in_session,
};
pub use service::{ServiceHandler, ServiceStep, Verified};
pub use wire::{
    AUTH_MODE_AUTHORIZER_MAX, AUTH_MODE_MON, Authenticate, Authorize, AuthorizeChallenge,
    AuthorizeReply, ChallengeBlob, ResponseHeader, ServerChallenge, ServiceTicketRequest, proof,
};
