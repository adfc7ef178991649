//! Messages as daemons and clients of Ceph 16.2.15 sent them: each decodes and encodes to the same
//! bytes; no cut and no flipped bit panics.
//!
//! A file holds the 41 bytes of the header, then front, middle and data, each after its u32
//! length. `LOLIGO_WIRE` names a folder with more of them.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use denc::Reader;
use messages::*;
use types::{BufferList, MsgHeader, RawMessage};

fn read(path: &Path) -> RawMessage {
    let file = Bytes::from(fs::read(path).unwrap());
    let mut r = Reader::new(&file);
    let header: MsgHeader = r.get().unwrap();
    let (front, middle, data) = (r.blob().unwrap(), r.blob().unwrap(), r.blob().unwrap());
    RawMessage { header, front, middle, data: BufferList::from(data) }
}

/// Decoded and encoded again. All that is compiled for each type of message: with the checks in it, it took a minute.
fn again<M: Message>(raw: &RawMessage) -> Result<RawMessage, String> {
    M::decode(raw).map(|message| message.encode()).map_err(|e| e.to_string())
}

type Again = fn(&RawMessage) -> Result<RawMessage, String>;

fn check(raw: &RawMessage, code: Again) -> Result<(), String> {
    let again = code(raw)?;
    if (again.header.version, again.header.compat_version)
        != (raw.header.version, raw.header.compat_version)
    {
        return Err(format!(
            "v{}/c{} becomes v{}/c{}",
            raw.header.version,
            raw.header.compat_version,
            again.header.version,
            again.header.compat_version
        ));
    }
    let parts = [
        ("front", &raw.front, &again.front),
        ("middle", &raw.middle, &again.middle),
        ("data", &raw.data.to_contiguous(), &again.data.to_contiguous()),
    ];
    for (part, before, after) in parts {
        if before != after {
            let at = before.iter().zip(after).position(|(a, b)| a != b);
            return Err(format!(
                "{part} of {} bytes becomes {}, differs at {at:?}",
                before.len(),
                after.len()
            ));
        }
    }
    let stride = raw.front.len() / 200 + 1;
    for at in (0..raw.front.len()).step_by(stride) {
        let _ = code(&RawMessage { front: raw.front.slice(..at), ..raw.clone() });
        let mut flipped = raw.front.to_vec();
        flipped[at] ^= 1 << (at % 8);
        let _ = code(&RawMessage { front: Bytes::from(flipped), ..raw.clone() });
    }
    let _ = code(&RawMessage { data: BufferList::new(), ..raw.clone() });
    Ok(())
}

macro_rules! by_type {
    ($raw:expr, $($name:ident)*) => {
        match $raw.header.kind {
            $(<$name as Message>::TYPE => Some((stringify!($name), check($raw, again::<$name>))),)*
            _ => None,
        }
    };
}

fn check_any(raw: &RawMessage) -> Option<(&'static str, Result<(), String>)> {
    by_type!(raw,
        MAuth
        MAuthReply
        MBackfillReserve
        MCommand
        MCommandReply
        MConfig
        MFSMap
        MFSMapUser
        MGetConfig
        MGetPoolStats
        MGetPoolStatsReply
        MKVData
        MLog
        MLogAck
        MMDSBeacon
        MMDSLoadTargets
        MMDSMap
        MMgrBeacon
        MMgrClose
        MMgrCommand
        MMgrCommandReply
        MMgrConfigure
        MMgrDigest
        MMgrMap
        MMgrOpen
        MMgrReport
        MMonCommand
        MMonCommandAck
        MMonGetMap
        MMonGetVersion
        MMonGetVersionReply
        MMonMap
        MMonMgrReport
        MMonSubscribe
        MMonSubscribeAck
        MOSDAlive
        MOSDBackoff
        MOSDBeacon
        MOSDBoot
        MOSDECSubOpRead
        MOSDECSubOpReadReply
        MOSDECSubOpWrite
        MOSDECSubOpWriteReply
        MOSDFailure
        MOSDForceRecovery
        MOSDFull
        MOSDMap
        MOSDMarkMeDead
        MOSDMarkMeDown
        MOSDOp
        MOSDOpReply
        MOSDPGBackfill
        MOSDPGBackfillRemove
        MOSDPGCreate2
        MOSDPGCreated
        MOSDPGInfo2
        MOSDPGLease
        MOSDPGLeaseAck
        MOSDPGLog
        MOSDPGNotify
        MOSDPGNotify2
        MOSDPGPull
        MOSDPGPush
        MOSDPGPushReply
        MOSDPGQuery2
        MOSDPGReadyToMerge
        MOSDPGRecoveryDelete
        MOSDPGRecoveryDeleteReply
        MOSDPGRemove
        MOSDPGScan
        MOSDPGTemp
        MOSDPGTrim
        MOSDPGUpdateLogMissing
        MOSDPGUpdateLogMissingReply
        MOSDPing
        MOSDRepOp
        MOSDRepOpReply
        MOSDRepScrub
        MOSDRepScrubMap
        MOSDScrub2
        MOSDScrubReserve
        MPGStats
        MPGStatsAck
        MPing
        MPoolOp
        MPoolOpReply
        MRecoveryReserve
        MServiceMap
        MStatfs
        MStatfsReply
        MWatchNotify
    )
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "bin"))
        .collect();
    files.sort();
    files
}

#[test]
fn messages_of_the_wire() {
    let mut paths = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"));
    if let Some(dir) = std::env::var_os("LOLIGO_WIRE") {
        paths.extend(files(Path::new(&dir)));
    }
    let (mut checked, mut kinds, mut failed) = (0, std::collections::BTreeSet::new(), Vec::new());
    for path in paths {
        let raw = read(&path);
        match catch_unwind(|| check_any(&raw)) {
            Ok(Some((name, Ok(())))) => {
                checked += 1;
                kinds.insert(name);
            }
            Ok(Some((name, Err(why)))) => failed.push(format!("{} {name}: {why}", path.display())),
            Ok(None) => failed.push(format!("{}: unknown type", path.display())),
            Err(_) => failed.push(format!("{}: panics", path.display())),
        }
    }
    println!("{checked} messages of {} types: {kinds:?}", kinds.len());
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n"));
}
