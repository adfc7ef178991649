//! Frames captured from real Ceph 16.2 (`golden/README.md`): every one is read, and written again
//! gives the same bytes; damaged ones are refused.

use bytes::BytesMut;
use msgr::frame::{
    Frame, FrameReader, FrameWriter, GcmStream, Segment, SendBatch, rx_tx_streams, tag,
};
use types::BufferList;

const BANNER_LEN: usize = 26;

fn read(name: &str) -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/");
    std::fs::read(format!("{dir}{name}")).unwrap()
}

/// Reads all frames; after the frame of tag `until` the stream is sealed with `gcm`.
fn frames(bytes: &[u8], until: u8, gcm: Option<GcmStream>) -> (Vec<Frame>, usize) {
    let mut reader = FrameReader::new();
    reader.authenticated(None);
    let mut gcm = gcm;
    let mut buf = BytesMut::from(&bytes[BANNER_LEN..]);
    let mut all = Vec::new();
    while let Some(frame) = reader.next(&mut buf).unwrap() {
        if frame.tag == until && gcm.is_some() {
            reader.authenticated(gcm.take());
        }
        all.push(frame);
    }
    (all, buf.len())
}

fn rewritten(frames: &[Frame], until: u8, gcm: Option<GcmStream>) -> Vec<u8> {
    let mut writer = FrameWriter::new();
    let mut gcm = gcm;
    let mut out = SendBatch::new();
    for frame in frames {
        let [first, a, b, c] = &frame.segments;
        let rest = [a, b, c].map(|bytes| BufferList::from(bytes.clone()));
        writer.frame(frame.tag, first, rest.each_ref().map(Segment::from), &mut out);
        if frame.tag == until && gcm.is_some() {
            writer.authenticated(gcm.take());
        }
    }
    out.take().concat()
}

fn tags(frames: &[Frame]) -> Vec<u8> {
    frames.iter().map(|frame| frame.tag).collect()
}

#[test]
fn crc_streams_read_and_write_again_the_same() {
    for name in ["mon_config", "osd_put", "osd_peer"] {
        for side in ["client", "server"] {
            let bytes = read(&format!("{name}.{side}.bin"));
            let (all, left) = frames(&bytes, 0, None);
            assert_eq!(left, 0, "{name}.{side}");
            assert!(all.len() >= 6, "{name}.{side}: {:?}", tags(&all));
            let again = rewritten(&all, 0, None);
            assert_eq!(again, bytes[BANNER_LEN..], "{name}.{side}");
        }
    }
    let (client, _) = frames(&read("osd_put.client.bin"), 0, None);
    assert_eq!(
        tags(&client)[..6],
        [
            tag::HELLO,
            tag::AUTH_REQUEST,
            tag::AUTH_REQUEST_MORE,
            tag::AUTH_SIGNATURE,
            tag::CLIENT_IDENT,
            tag::MESSAGE
        ]
    );
    let (peer, _) = frames(&read("osd_peer.server.bin"), 0, None);
    assert!(tags(&peer).contains(&tag::ACK));
}

#[test]
fn secure_streams_read_and_write_again_the_same() {
    let hex = String::from_utf8(read("secure_mon.secret")).unwrap();
    let secret: Vec<u8> = (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let streams = |is_server| rx_tx_streams(&secret, is_server).unwrap();

    let server = read("secure_mon.server.bin");
    let (all, left) = frames(&server, tag::AUTH_DONE, Some(streams(false).0));
    assert_eq!(left, 0);
    assert!(tags(&all).contains(&tag::MESSAGE), "{:?}", tags(&all));
    let again = rewritten(&all, tag::AUTH_DONE, Some(streams(true).1));
    assert_eq!(again, server[BANNER_LEN..]);

    let client = read("secure_mon.client.bin");
    let (all, left) = frames(&client, tag::AUTH_REQUEST_MORE, Some(streams(true).0));
    assert_eq!(left, 0);
    let again = rewritten(&all, tag::AUTH_REQUEST_MORE, Some(streams(false).1));
    assert_eq!(again, client[BANNER_LEN..]);

    // One bit anywhere in the sealed part ends the stream.
    let sealed_from = server.len() - 700;
    for at in (sealed_from..server.len()).step_by(13) {
        let mut bad = server.clone();
        bad[at] ^= 4;
        let mut reader = FrameReader::new();
        reader.authenticated(None);
        let mut buf = BytesMut::from(&bad[BANNER_LEN..]);
        let refused = loop {
            match reader.next(&mut buf) {
                Ok(Some(frame)) if frame.tag == tag::AUTH_DONE => {
                    reader.authenticated(Some(streams(false).0));
                }
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        assert!(refused, "byte {at}");
    }
}

#[test]
fn every_cut_waits_for_more_and_every_flip_is_seen() {
    let bytes = read("osd_put.server.bin");
    let (all, _) = frames(&bytes, 0, None);
    for cut in BANNER_LEN..bytes.len() {
        let (some, _) = frames(&bytes[..cut], 0, None);
        assert!(some.len() < all.len());
        assert_eq!(some[..], all[..some.len()]);
    }
    for at in BANNER_LEN..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        let mut reader = FrameReader::new();
        reader.authenticated(None);
        let mut buf = BytesMut::from(&bad[BANNER_LEN..]);
        let mut got = Vec::new();
        while let Ok(Some(frame)) = reader.next(&mut buf) {
            got.push(frame);
        }
        // All but two things are covered by a crc: the high half of the late status, and crc slots
        // of segments that are not there.
        let same = got == all;
        let covered = !same || bytes[at] & 0xf == 0xe || bytes[at] == 0;
        assert!(covered, "byte {at} = {:#x}", bytes[at]);
    }
}

#[test]
fn lengths_above_the_limits_are_refused_before_anything_is_allocated() {
    use msgr::frame::{CONTROL_SEGMENT_MAX, DATA_MAX, FRONT_MAX, FrameError, Preamble};
    let of = |tag, lens: [u32; 4]| Preamble { tag, segments: 4, lens }.encode();
    let long = [
        of(tag::MESSAGE, [41, FRONT_MAX + 1, 0, 0]),
        of(tag::MESSAGE, [41, 0, 0, DATA_MAX + 1]),
        of(tag::ACK, [CONTROL_SEGMENT_MAX + 1, 0, 0, 0]),
    ];
    for bytes in long {
        assert!(matches!(Preamble::decode(&bytes, true), Err(FrameError::TooLong { .. })));
    }
    let hello = of(tag::HELLO, [70_000, 0, 0, 0]);
    assert!(Preamble::decode(&hello, false).is_err() && Preamble::decode(&hello, true).is_ok());
    let none = Preamble { tag: tag::ACK, segments: 0, lens: [0; 4] }.encode();
    assert_eq!(Preamble::decode(&none, true), Err(FrameError::Segments { count: 0 }));
}
