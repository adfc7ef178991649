//! Whole exchanges between our own sides: client with monitor, client with service.

use std::cell::Cell;

use auth::cephx::{
    Authorizer, CephxClient, GlobalIdStatus, MonHandler, MonRules, ServiceHandler, ServiceStep,
    ServiceTicketRequest, StartRequest, answer_in_session, mon_authorizer,
};
use auth::{
    AuthCapsInfo, AuthError, AuthTicket, CryptoKey, EntityAuth, KeyIncrement, KeyServer,
    MonSecrets, ServiceSecrets, ServiceTicketInfo, TicketBlob,
};
use bytes::Bytes;
use denc::{Denc, Writer};
use types::UTime;
use types::entity::{AUTH, AuthEntityName, MGR, MON, OSD};

thread_local!(static NEXT: Cell<u64> = const { Cell::new(1) });

fn fill(buf: &mut [u8]) {
    for chunk in buf.chunks_mut(8) {
        let n = NEXT.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        NEXT.set(NEXT.get() + 1);
        chunk.copy_from_slice(&n.to_le_bytes()[..chunk.len()]);
    }
}

const NOW: UTime = UTime::new(1_700_000_000, 0);

fn name(text: &str) -> AuthEntityName {
    text.parse().unwrap()
}

fn key(n: u8) -> CryptoKey {
    CryptoKey::new([n; 16], NOW)
}

fn server() -> KeyServer {
    let mut keys = KeyServer::default();
    let rotated = keys.rotation_due(NOW, &fill).unwrap();
    keys.data.apply(&KeyIncrement::SetRotating(rotated)).unwrap();
    assert!(keys.rotation_due(NOW, &fill).is_none());
    let admin = EntityAuth::new(key(1), [("mon", "allow *"), ("osd", "allow rwx")]);
    keys.data.apply(&KeyIncrement::Add(name("client.admin"), admin)).unwrap();
    let osd = EntityAuth::new(key(2), [("mon", "allow profile osd")]);
    keys.data.apply(&KeyIncrement::Add(name("osd.0"), osd)).unwrap();
    keys
}

fn rules(keys: &KeyServer) -> MonRules<'_> {
    MonRules { keys, now: NOW, fill: &fill, allow_insecure_reclaim: false }
}

/// One handshake of `client` with the monitor; the status of its global id.
fn authenticate(
    client: &mut CephxClient,
    keys: &KeyServer,
    new_id: Option<u64>,
    secure: bool,
) -> Result<GlobalIdStatus, AuthError> {
    let start = StartRequest::from_bytes_exact(&client.start()).unwrap();
    assert!(StartRequest::is_one(&client.start()));
    let id = new_id.unwrap_or(start.global_id);
    let (handler, challenge) = MonHandler::start(start.name, id, new_id.is_some(), &fill);
    let proof = client.on_challenge(&challenge, u32::from(MON | OSD | MGR), &fill)?;
    let done = handler.authenticate(&proof, secure, &rules(keys))?;
    let (session_key, secret) = client.on_done(id, &done.reply, NOW)?;
    assert_eq!(session_key, done.session_key);
    assert_eq!(secret, done.connection_secret);
    assert_eq!(secret.len(), if secure { 64 } else { 0 });
    assert_eq!(done.caps, keys.caps(client.name(), "mon").unwrap());
    Ok(done.global_id_status)
}

#[test]
fn tickets_open_the_services_and_the_global_id_is_kept_by_the_old_ticket() {
    let keys = server();
    let mut client = CephxClient::new(name("client.admin"), key(1));
    assert_eq!(authenticate(&mut client, &keys, Some(4123), true), Ok(GlobalIdStatus::New));
    assert_eq!(client.global_id(), 4123);
    assert_eq!(client.needs(u32::from(AUTH | OSD | MGR | MON), NOW), 0);
    assert_eq!(authenticate(&mut client, &keys, None, false), Ok(GlobalIdStatus::Reclaimed));

    // Somebody without the ticket cannot take the id.
    let mut thief = CephxClient::new(name("client.admin"), key(1));
    thief.on_done(4123, &Bytes::new(), NOW).unwrap_err();
    let (handler, challenge) = MonHandler::start(name("client.admin"), 4123, false, &fill);
    let proof = thief.on_challenge(&challenge, 4, &fill).unwrap();
    let denied = handler.authenticate(&proof, false, &rules(&keys));
    assert_eq!(denied.unwrap_err(), AuthError::BadGlobalId);

    for secure in [false, true] {
        let authorizer = client.authorizer(OSD, &fill).unwrap();
        let mut service = ServiceHandler::new();
        let first = service.step(&authorizer.request(), secure, &keys, &fill).unwrap();
        let ServiceStep::Challenge(challenge) = first else { panic!("{first:?}") };
        assert_eq!(challenge.len(), 32);
        let answer = authorizer.on_challenge(&challenge).unwrap();
        let done = service.step(&answer, secure, &keys, &fill).unwrap();
        let ServiceStep::Done(done) = done else { panic!("{done:?}") };
        assert_eq!(done.ticket.global_id, 4123);
        assert_eq!(done.ticket.name, name("client.admin"));
        assert_eq!(done.ticket.caps.text().unwrap(), "allow rwx");
        let (session_key, secret) = authorizer.on_done(&done.reply).unwrap();
        assert_eq!((session_key, secret), (done.session_key, done.connection_secret));
        // The same answer does not open another handshake.
        let again = ServiceHandler::new().step(&answer, secure, &keys, &fill).unwrap();
        assert!(matches!(again, ServiceStep::Challenge(_)));
    }
}

/// A monitor opened authorizers with any service's secrets, and took what a ticket for an OSD allows
/// for what its holder may do at monitors.
#[test]
fn at_a_monitor_only_the_key_of_monitors_opens_authorizers() {
    let mut keys = server();
    let mon = EntityAuth::new(key(3), [("mon", "allow *")]);
    keys.data.apply(&KeyIncrement::Add(name("mon."), mon)).unwrap();
    let mut client = CephxClient::new(name("client.admin"), key(1));
    authenticate(&mut client, &keys, Some(4123), true).unwrap();
    let secrets = MonSecrets(&keys);
    let open = |authorizer: Authorizer| {
        ServiceHandler::new().step(&authorizer.request(), true, &secrets, &fill)
    };
    for service in [AUTH, MON, OSD, MGR] {
        let refused = open(client.authorizer(service, &fill).unwrap()).unwrap_err();
        assert!(matches!(refused, AuthError::UnknownSecret { .. }), "{refused}");
    }
    let peer = open(mon_authorizer(&keys, MON, NOW, &fill).unwrap()).unwrap();
    assert!(matches!(peer, ServiceStep::Challenge(_)));
}

/// Tickets are sealed without a signature: a flipped bit of the ciphertext flips the same bit of the
/// next block, here "allows all", and garbles only its own block, which was not looked at. So anybody
/// with any ticket for an OSD could do everything there.
#[test]
fn no_ticket_allows_all_whatever_it_says() {
    let keys = server();
    let (id, secret, _) = keys.current_secret(OSD, NOW).unwrap();
    let open = |info: &ServiceTicketInfo, flip: Option<usize>| {
        let mut sealed = secret.seal(|w| info.encode(w)).to_vec();
        if let Some(byte) = flip {
            sealed[byte] ^= 1;
        }
        let blob = TicketBlob { secret_id: id, blob: sealed.into() };
        let authorizer = Authorizer::new(7, OSD.into(), &blob, key(4), 5);
        let mut service = ServiceHandler::new();
        let ServiceStep::Challenge(challenge) =
            service.step(&authorizer.request(), true, &keys, &fill)?
        else {
            panic!("no challenge")
        };
        let answer = authorizer.on_challenge(&challenge)?;
        match service.step(&answer, true, &keys, &fill)? {
            ServiceStep::Done(done) => Ok(done.ticket),
            other => panic!("{other:?}"),
        }
    };
    let ticket = AuthTicket {
        name: name("client.0123456789"),
        global_id: 7,
        created: NOW,
        expires: UTime::new(NOW.sec + 3600, 0),
        caps: AuthCapsInfo::from_text("allow r"),
        flags: 0,
    };
    let info =
        |ticket: &AuthTicket| ServiceTicketInfo { ticket: ticket.clone(), session_key: key(4) };
    assert_eq!(open(&info(&ticket), None), Ok(ticket.clone()));
    for length in 1..=16 {
        let name = AuthEntityName::new(types::entity::CLIENT, "x".repeat(length));
        let ticket = AuthTicket { name, ..ticket.clone() };
        let opened = open(&info(&ticket), Some(36 + length));
        assert!(opened.is_err(), "{length}: {opened:?}");
    }
    let mut all = ticket.clone();
    all.caps.allow_all = true;
    assert_eq!(open(&info(&all), None), Ok(ticket.clone()));
    // One whose time is over opens: its secret is still there.
    let old = AuthTicket { created: UTime::new(1, 0), expires: UTime::new(2, 0), ..ticket.clone() };
    assert_eq!(open(&info(&old), None), Ok(old.clone()));
    let nsec = UTime::new(1, 1_000_000_000);
    for (created, expires) in [(NOW, old.expires), (nsec, NOW), (UTime::ZERO, nsec)] {
        let odd = AuthTicket { created, expires, ..ticket.clone() };
        assert_eq!(open(&info(&odd), None), Err(AuthError::Sealed));
    }
}

#[test]
fn wrong_keys_and_unknown_names_are_refused() {
    let keys = server();
    let mut liar = CephxClient::new(name("client.admin"), key(9));
    assert_eq!(authenticate(&mut liar, &keys, Some(1), true), Err(AuthError::BadProof));
    let mut nobody = CephxClient::new(name("client.x"), key(1));
    assert_eq!(authenticate(&mut nobody, &keys, Some(1), true), Err(AuthError::UnknownEntity));
}

/// An entity came into the cluster without a key, by `auth import` of a file in which its line was forgotten: whoever
/// knew its name was let in, as an empty key seals nothing. With an empty key of `mon.` anybody was a monitor.
#[test]
fn an_empty_key_lets_nobody_in() {
    let mut keys = server();
    for (who, caps) in [("client.bare", ("osd", "allow *")), ("mon.", ("mon", "allow *"))] {
        let auth = EntityAuth::new(CryptoKey::default(), [caps]);
        keys.data.apply(&KeyIncrement::Add(name(who), auth)).unwrap();
        let mut client = CephxClient::new(name(who), CryptoKey::default());
        let denied = authenticate(&mut client, &keys, Some(4123), true);
        assert_eq!(denied.unwrap_err(), AuthError::UnknownEntity);
    }
    assert_eq!(keys.own_secret(&name("mon.")), None);
}

#[test]
fn requests_inside_a_session() {
    let keys = server();
    let mut osd = CephxClient::new(name("osd.0"), key(2));
    authenticate(&mut osd, &keys, Some(7), true).unwrap();
    let reply =
        answer_in_session(&name("osd.0"), &CephxClient::rotating_request(), &rules(&keys)).unwrap();
    let secrets = osd.on_reply(&reply, NOW).unwrap().unwrap();
    assert_eq!(secrets, keys.data.rotating[&u32::from(OSD)]);

    let later = UTime::new(NOW.sec + 2700, 0);
    assert_eq!(osd.needs(u32::from(OSD), UTime::new(later.sec - 1, 0)), 0);
    assert_eq!(osd.needs(u32::from(OSD), later), u32::from(OSD));
    assert_eq!(osd.next_renewal(), Some(later));
    let request = osd.renew_request(u32::from(OSD | MGR), &fill).unwrap();
    let before = osd.ticket(OSD).unwrap().session_key.clone();
    let rules = MonRules { now: later, ..rules(&keys) };
    let reply = answer_in_session(&name("osd.0"), &request, &rules).unwrap();
    assert!(osd.on_reply(&reply, later).unwrap().is_none());
    assert_ne!(osd.ticket(OSD).unwrap().session_key, before);
    assert_eq!(osd.needs(u32::from(OSD), later), 0);
    assert!(answer_in_session(&name("osd.1"), &request, &rules).is_err());

    // A service's ticket, which its holder may have from long ago, is not renewed by itself.
    let mut w = Writer::new();
    w.u16(0x0200);
    w.raw(&osd.authorizer(OSD, &fill).unwrap().request());
    ServiceTicketRequest { keys: OSD.into() }.encode(&mut w);
    let renewed = answer_in_session(&name("osd.0"), &w.into_bytes(), &rules);
    assert_eq!(renewed.unwrap_err(), AuthError::BadProof);
}

#[test]
fn the_auth_ticket_is_renewed_inside_a_session() {
    let keys = server();
    let mut client = CephxClient::new(name("client.admin"), key(1));
    let (handler, challenge) = MonHandler::start(name("client.admin"), 4123, true, &fill);
    let proof = client.on_challenge(&challenge, u32::from(OSD), &fill).unwrap();
    let done = handler.authenticate(&proof, true, &rules(&keys)).unwrap();
    client.on_done(4123, &done.reply, NOW).unwrap();
    let before = client.ticket(AUTH).unwrap().session_key.clone();
    let proof = client.on_challenge(&challenge, u32::from(OSD), &fill).unwrap();
    let reply = handler.answer_in_session(&proof, &rules(&keys)).unwrap();
    client.on_done(4123, &reply, NOW).unwrap();
    assert_ne!(client.ticket(AUTH).unwrap().session_key, before);
    let rotating = handler.answer_in_session(&CephxClient::rotating_request(), &rules(&keys));
    assert!(rotating.is_err(), "clients have no rotating secrets");
}

#[test]
fn cut_payloads_are_errors() {
    let keys = server();
    let mut client = CephxClient::new(name("client.admin"), key(1));
    authenticate(&mut client, &keys, Some(4123), true).unwrap();
    let (handler, challenge) = MonHandler::start(name("client.admin"), 4123, false, &fill);
    let proof = client.on_challenge(&challenge, 4, &fill).unwrap();
    let done = handler.authenticate(&proof, true, &rules(&keys)).unwrap().reply;
    let authorizer = client.authorizer(OSD, &fill).unwrap().request();
    let mut taken = 0;
    for cut in 0..done.len() - 1 {
        let part = done.slice(..cut);
        taken += usize::from(client.clone().on_done(4123, &part, NOW).is_ok());
        let part = proof.slice(..cut.min(proof.len() - 1));
        assert!(handler.authenticate(&part, true, &rules(&keys)).is_err());
        let part = authorizer.slice(..cut.min(authorizer.len() - 1));
        assert!(ServiceHandler::new().step(&part, true, &keys, &fill).is_err());
    }
    // Cut behind the auth ticket it is the answer of a monitor that was asked for no other.
    assert_eq!(taken, 1);
}
