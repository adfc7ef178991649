//! Objects as names of files, the way of Ceph's LFNIndex (`src/os/filestore/LFNIndex.cc` at v16.2).
//!
//! `NAME_KEY_SNAP_HASH_NAMESPACE_POOL[_GENERATION_SHARD]`, where in texts `\` is `\\`, `_` is `\u`, `/`
//! is `\s` and a zero byte `\n`; a leading `.` is `\.`, a leading `DIR_` is `\d`. Numbers are hex.
//! A name longer than a file system takes is cut, and ends in `_ID_long`: whose file it is stands in
//! the key-value store.

use bstr::BString;
use types::hobject::{GhObject, HObject, NO_GEN};

/// Longest name of a file in bytes (NAME_MAX of Linux).
const FILE_NAME_MAX: usize = 255;
/// Bytes of a cut name that are kept: for people.
const KEPT_MAX: usize = 200;
const NO_SHARD: i8 = -1;

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let rest = match text {
        [b'.', rest @ ..] => {
            out.extend_from_slice(b"\\.");
            rest
        }
        [b'D', b'I', b'R', b'_', rest @ ..] => {
            out.extend_from_slice(b"\\d");
            rest
        }
        _ => text,
    };
    for &byte in rest {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'_' => out.extend_from_slice(b"\\u"),
            b'/' => out.extend_from_slice(b"\\s"),
            0 => out.extend_from_slice(b"\\n"),
            _ => out.push(byte),
        }
    }
}

fn text(field: &[u8]) -> Option<BString> {
    let mut out = Vec::new();
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\\' => out.push(b'\\'),
            b'u' => out.push(b'_'),
            b's' => out.push(b'/'),
            b'n' => out.push(0),
            b'.' => out.push(b'.'),
            b'd' => out.extend_from_slice(b"DIR_"),
            _ => return None,
        }
    }
    Some(out.into())
}

fn hex(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok()
}

/// The whole name, however long.
fn whole_name(oid: &GhObject) -> Vec<u8> {
    let hobj = &oid.hobj;
    let mut out = Vec::new();
    put_text(&mut out, &hobj.name);
    out.push(b'_');
    put_text(&mut out, &hobj.key);
    out.extend_from_slice(format!("_{:x}_{:08X}_", hobj.snap, hobj.hash).as_bytes());
    put_text(&mut out, &hobj.namespace);
    out.extend_from_slice(format!("_{:x}", hobj.pool).as_bytes());
    if oid.generation != NO_GEN || oid.shard != NO_SHARD {
        out.extend_from_slice(format!("_{:x}_{:x}", oid.generation, oid.shard).as_bytes());
    }
    out
}

/// The name of an object's file, unless it is too long.
pub(super) fn file_name(oid: &GhObject) -> Option<Vec<u8>> {
    Some(whole_name(oid)).filter(|name| name.len() <= FILE_NAME_MAX)
}

/// The name of the file of an object whose own name is too long.
pub(super) fn long_file_name(oid: &GhObject, id: u64) -> Vec<u8> {
    let mut name = whole_name(oid);
    name.truncate(KEPT_MAX);
    name.extend_from_slice(format!("_{id:x}_long").as_bytes());
    name
}

/// What a file's name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Object(GhObject),
    Long(u64),
}

/// Reads a file's name; `None` if it is none of ours.
pub(super) fn parse(name: &[u8]) -> Option<Named> {
    let fields: Vec<&[u8]> = name.split(|&b| b == b'_').collect();
    if let [.., id, b"long"] = fields[..] {
        return hex(id).map(Named::Long);
    }
    let (fields, generation, shard) = match fields[..] {
        [a, b, c, d, e, f] => ([a, b, c, d, e, f], NO_GEN, NO_SHARD),
        [a, b, c, d, e, f, generation, shard] => {
            let shard = u8::try_from(hex(shard)?).ok()? as i8;
            ([a, b, c, d, e, f], hex(generation)?, shard)
        }
        _ => return None,
    };
    let [name, key, snap, hash, namespace, pool] = fields;
    let hobj = HObject {
        name: text(name)?,
        key: text(key)?,
        snap: hex(snap)?,
        hash: u32::try_from(hex(hash)?).ok()?,
        max: false,
        namespace: text(namespace)?,
        pool: hex(pool)? as i64,
    };
    Some(Named::Object(GhObject { hobj, generation, shard, max: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_their_objects_back() {
        let texts: [&[u8]; 7] = [b"", b"a", b".x", b"DIR_1", b"a_b/c\\d\0e", b"_", &[255; 9]];
        for name in texts {
            for key in texts {
                let mut oid = GhObject::new(HObject {
                    name: name.into(),
                    key: key.into(),
                    snap: u64::MAX - 1,
                    hash: 0xdead_beef,
                    max: false,
                    namespace: name.into(),
                    pool: -3,
                });
                for (generation, shard) in [(NO_GEN, NO_SHARD), (7, 3), (NO_GEN, 0), (0, NO_SHARD)]
                {
                    (oid.generation, oid.shard) = (generation, shard);
                    let file = file_name(&oid).unwrap();
                    assert!(!file.contains(&b'/') && !file.contains(&0));
                    assert!(!file.starts_with(b".") && !file.starts_with(b"DIR_"));
                    assert_eq!(parse(&file), Some(Named::Object(oid.clone())));
                }
            }
        }
        let long = GhObject::new(HObject { name: vec![b'_'; 300].into(), ..HObject::default() });
        assert_eq!(file_name(&long), None);
        assert_eq!(parse(&long_file_name(&long, 77)), Some(Named::Long(77)));
        assert_eq!(parse(b"junk"), None);
    }
}
