//! Bytes nobody should send, in each phase, against a listening messenger: that connection ends,
//! the others live on, nothing leaks.

mod common;

use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::{localhost, node, node_of, raw, until};
use denc::Denc;
use env::real::Runtime;
use env::{Env, Stream};
use msgr::frame::{FrameWriter, PREAMBLE_LEN, Preamble, Segment, SendBatch, tag};
use msgr::{Config, FEATURES_ALL, Policies, Policy};
use types::BufferList;
use types::addr::{AddrVec, EntityAddr};
use types::entity::{CLIENT, EntityName, OSD};
use types::message::MsgHeader;

fn frame(tag: u8, segments: &[&[u8]]) -> Vec<u8> {
    let mut out = SendBatch::new();
    let mut rest = [(); 3].map(|()| BufferList::new());
    for (list, segment) in rest.iter_mut().zip(&segments[1..]) {
        list.push(Bytes::copy_from_slice(segment));
    }
    FrameWriter::new().frame(tag, segments[0], rest.each_ref().map(Segment::from), &mut out);
    out.take().concat()
}

fn encoded<T: Denc>(value: &T) -> Vec<u8> {
    value.to_bytes().to_vec()
}

/// What a proper client without keys sends, phase by phase.
fn proper(server: &AddrVec) -> Vec<Vec<u8>> {
    let mut banner = b"ceph v2\n".to_vec();
    banner.extend_from_slice(&16_u16.to_le_bytes());
    banner.extend_from_slice(&1_u64.to_le_bytes());
    banner.extend_from_slice(&0_u64.to_le_bytes());
    let target = *server.msgr2().unwrap();
    let hello = encoded(&(CLIENT, target));
    let name = types::AuthEntityName::new(CLIENT, "7");
    let authorizer = auth::none::authorizer(&name, 77);
    let request = encoded(&(auth::METHOD_NONE, vec![auth::MODE_CRC], authorizer));
    let own = EntityAddr::any("127.0.0.1:0".parse().unwrap(), 999);
    let mut ident = encoded(&(AddrVec::of(own), target, -1_i64));
    for word in [1, FEATURES_ALL, 0, 1, 0] {
        ident.extend_from_slice(&u64::to_le_bytes(word));
    }
    let header =
        MsgHeader { seq: 1, kind: 42, priority: 127, compat_version: 1, ..MsgHeader::default() };
    vec![
        banner,
        frame(tag::HELLO, &[&hello]),
        frame(tag::AUTH_REQUEST, &[&request]),
        frame(tag::AUTH_SIGNATURE, &[&[0; 32]]),
        frame(tag::CLIENT_IDENT, &[&ident]),
        frame(tag::MESSAGE, &[&encoded(&header), b"front", b"", b"data"]),
    ]
}

/// Sends and throws away what comes back, until the other side closes or `patience` is over;
/// whether it closed.
async fn play(env: &Env, server: &AddrVec, bytes: Vec<Vec<u8>>, patience: Duration) -> bool {
    let sock = server.msgr2().unwrap().sock.unwrap();
    let stream: Rc<dyn Stream> = env.connect(sock).await.unwrap();
    for piece in bytes {
        if stream.send(vec![Bytes::from(piece)]).await.is_err() {
            return true;
        }
    }
    let drained = async {
        loop {
            let (n, _) = stream.recv(BytesMut::with_capacity(4096)).await;
            if !matches!(n, Ok(n) if n > 0) {
                return;
            }
        }
    };
    let closed = env.timeout(patience, drained).await.is_ok();
    stream.close();
    closed
}

#[test]
fn nothing_a_stranger_sends_hurts_others() {
    Runtime::new().unwrap().block_on(|env| async move {
        let policies = Policies::new(Policy::stateless_registered_server());
        let (server, seen) = node(&env, EntityName::osd(0), policies, None);
        server.bind(localhost()).unwrap();
        let addrs = server.addrs();
        let (friend, _) =
            node(&env, EntityName::client(1), Policies::new(Policy::lossy_client()), None);
        let con = friend.connect_to(OSD, &addrs);
        con.send(raw(1, 1, b""));
        until(&env, "friend", || seen.count.get() == 1).await;

        // A proper one is heard.
        let quick = Duration::from_millis(40);
        assert!(!play(&env, &addrs, proper(&addrs), quick).await);
        until(&env, "proper", || seen.count.get() == 2).await;

        let mut closed = 0;
        let mut played = 0;
        for phase in 0..proper(&addrs).len() {
            let good = proper(&addrs);
            let next = good[phase].clone();
            let mut tries: Vec<Vec<u8>> = Vec::new();
            for _ in 0..12 {
                let mut noise = vec![0; (env.random_u64() % 700) as usize + 1];
                env.fill_random(&mut noise);
                tries.push(noise);
            }
            // Every kind of frame where it does not belong, and empty ones.
            for tag in 0..=22 {
                tries.push(frame(tag, &[b""]));
                tries.push(frame(tag, &[&[0xff; 64]]));
                tries.push(frame(tag, &[&[0; 300], b"x", b"", b"y"]));
            }
            // Too long, by every segment.
            for segment in 0..4 {
                let mut lens = [8; 4];
                lens[segment] = u32::MAX - 7;
                let preamble: [u8; PREAMBLE_LEN] =
                    Preamble { tag: tag::MESSAGE, segments: 4, lens }.encode();
                tries.push(preamble.to_vec());
            }
            // The right frame, cut or with one byte changed.
            for _ in 0..20 {
                let at = (env.random_u64() % next.len() as u64) as usize;
                tries.push(next[..at].to_vec());
                let mut flipped = next.clone();
                flipped[at] ^= 1 << (env.random_u64() % 8);
                tries.push(flipped);
            }
            for bad in tries {
                let mut bytes = good[..phase].to_vec();
                bytes.push(bad);
                closed += usize::from(play(&env, &addrs, bytes, quick).await);
                played += 1;
            }
        }
        assert!(closed > played / 2, "{closed} of {played} were closed");
        // The friend was not disturbed, and a new one is served.
        con.send(raw(1, 99, b"still here"));
        until(&env, "friend again", || seen.tids().contains(&99)).await;
        assert!(con.is_connected());
        let (late, _) =
            node(&env, EntityName::client(2), Policies::new(Policy::lossy_client()), None);
        late.connect_to(OSD, &addrs).send(raw(1, 100, b""));
        until(&env, "late", || seen.tids().contains(&100)).await;
        until(&env, "all gone", || server.connections().len() <= 2).await;
        server.shutdown();
        friend.shutdown();
        late.shutdown();
    });
}

/// Who opened as many connections as a daemon takes strangers, and said nothing, kept everybody
/// else out for as long as he came back: new ones were closed. The oldest makes room now.
#[test]
fn strangers_who_hold_all_places_keep_nobody_out() {
    Runtime::new().unwrap().block_on(|env| async move {
        let policies = Policies::new(Policy::stateless_registered_server());
        let mut config = Config::new(EntityName::osd(0), 1, policies);
        config.strangers_max = 3;
        config.ready_timeout = Duration::from_secs(600);
        let (server, seen) = node_of(&env, config, None);
        server.bind(localhost()).unwrap();
        let addrs = server.addrs();
        let sock = addrs.msgr2().unwrap().sock.unwrap();
        let mut silent: Vec<Rc<dyn Stream>> = Vec::new();
        for _ in 0..20 {
            silent.push(env.connect(sock).await.unwrap());
        }
        let (friend, _) =
            node(&env, EntityName::client(1), Policies::new(Policy::lossy_client()), None);
        friend.connect_to(OSD, &addrs).send(raw(1, 7, b""));
        until(&env, "friend", || seen.tids().contains(&7)).await;

        // The server says its banner first: whoever hears nothing after it is still a stranger.
        let mut open = 0;
        for stream in &silent {
            let heard = async {
                while matches!(stream.recv(BytesMut::with_capacity(4096)).await, (Ok(n), _) if n > 0) {}
            };
            open += usize::from(env.timeout(Duration::from_millis(200), heard).await.is_err());
        }
        // The friend took the place of one.
        assert_eq!(open, 2);
        server.shutdown();
        friend.shutdown();
    });
}
