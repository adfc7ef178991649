//! Data segments come with the checksums of their pages. Long ones are received into buffers of
//! their own: they come out whole wherever the stream is cut, lie in memory as their header asks,
//! and damage is seen.

use bytes::{Bytes, BytesMut};
use denc::Denc;
use msgr::frame::{Frame, FrameReader, FrameWriter, Segment, SendBatch, tag};
use types::BufferList;
use types::crc::crc32c;
use types::message::MsgHeader;

const PAGE: usize = 4096;

fn bytes(len: usize, seed: u64) -> Bytes {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// A message of these lengths, whose data should begin at `data_off` in a page.
fn message(data_off: u16, lens: [usize; 3], out: &mut SendBatch) -> Frame {
    let header = MsgHeader { data_off, ..MsgHeader::default() }.to_bytes();
    let [front, middle, data] = lens.map(|len| bytes(len, len as u64));
    let parts = [&front, &middle, &data].map(|bytes| BufferList::from(bytes.clone()));
    FrameWriter::new().frame(tag::MESSAGE, &header, parts.each_ref().map(Segment::from), out);
    Frame { tag: tag::MESSAGE, count: 4, segments: [header, front, middle, data], sums: None }
}

/// Reads as a connection does, at most `step` bytes at a time.
fn receive(stream: &[u8], step: usize) -> Result<Vec<Frame>, msgr::frame::FrameError> {
    let mut reader = FrameReader::new();
    reader.authenticated(None);
    let (mut rest, mut buf, mut frames) = (stream, BytesMut::new(), Vec::new());
    loop {
        while let Some(frame) = reader.next(&mut buf)? {
            frames.push(frame);
        }
        if rest.is_empty() {
            return Ok(frames);
        }
        match reader.lend() {
            Some((mut room, range)) => {
                let n = step.min(range.len()).min(rest.len());
                room.copy_from_slice_at(range.start, &rest[..n]);
                rest = &rest[n..];
                reader.give_back(room, n);
            }
            None => {
                let n = step.min(rest.len());
                buf.extend_from_slice(&rest[..n]);
                rest = &rest[n..];
            }
        }
    }
}

#[test]
fn they_come_whole_and_aligned_however_the_stream_is_cut() {
    let mut out = SendBatch::new();
    let mut sent = vec![message(0, [100, 0, 4096], &mut out)];
    for (data_off, lens) in [
        (4086, [100, 0, 5000]),
        (4086, [100, 9, 4105]),
        (0, [0, 0, 4095]),
        (0, [3000, 0, 1 << 20]),
        (4082, [200, 7, (300 << 10) + 28]),
        (0xffff, [0, 0, 64 << 10]),
        (17, [1, 0, (64 << 10) - 1]),
        (9, [90_000, 2, 100_001]),
    ] {
        sent.push(message(data_off, lens, &mut out));
    }
    sent.push(message(5, [100, 3, 10], &mut out));
    let stream = out.to_vec();
    for step in [usize::MAX, 1 << 20, 70_000, 4096, 999, 61] {
        let got = receive(&stream, step).unwrap();
        assert!(got == sent, "in steps of {step}");
        for frame in &got {
            let data = &frame.segments[3];
            let header = MsgHeader::from_bytes(&frame.segments[0]).unwrap();
            if data.len() >= 64 << 10 {
                let offset = data.as_ptr() as usize % PAGE;
                assert_eq!(offset, usize::from(header.data_off) % PAGE);
            }
            let lead = (PAGE - usize::from(header.data_off) % PAGE) % PAGE;
            assert_eq!(frame.sums.is_some(), data.len() >= lead + PAGE);
            if let Some(sums) = &frame.sums {
                for part in [&data[..], &data[5..], &data[lead..lead + PAGE]] {
                    assert_eq!(sums.crc32c(0, part), Some(crc32c(0, part)));
                }
            }
        }
    }
}

#[test]
fn damage_and_ends_are_seen() {
    let mut out = SendBatch::new();
    message(14, [100, 20, 70_000], &mut out);
    let stream = out.to_vec();
    for cut in [0, 10, 32, 100, 250, 40_000, stream.len() - 5] {
        assert_eq!(receive(&stream[..cut], 5000).unwrap().len(), 0, "cut at {cut}");
    }
    let body_end = stream.len() - 13;
    for at in (0..body_end).step_by(371).chain(body_end + 1..stream.len()) {
        let mut bad = stream.clone();
        bad[at] ^= 0x20;
        assert!(receive(&bad, 5000).is_err(), "byte {at}");
    }
    // Given up by its sender: nothing, and the next one comes.
    let mut aborted = stream.clone();
    aborted[body_end] = 1;
    aborted.extend_from_slice(&stream);
    assert_eq!(receive(&aborted, 5000).unwrap().len(), 1);
}
