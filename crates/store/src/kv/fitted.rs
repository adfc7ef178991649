//! RocksDB's settings for a small device, and the room it needs to go on.

use super::RocksDbOptions;

/// Settings that were fitted to a device, and what comes of them. In bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The settings.
    pub options: RocksDbOptions,
    /// A write buffer.
    pub(crate) buffer: u64,
    /// The most that one compaction makes anew, as it lies.
    pub(crate) compaction: u64,
}

/// Room for what else an opening writes: a manifest, settings, BlueFS's log.
const FILES_LEN: u64 = 1 << 20;

/// Bytes that a database may need beside the `has` that it has, whatever comes: for its log and what is
/// being flushed, and for a compaction, which writes tables before it removes those that it made them of. Of
/// that it may have `made` some already: when it is killed then, they are removed by the next opening, but after it
/// has flushed what was in the log.
pub(crate) fn need(buffer: u64, compaction: u64, has: u64, made: u64) -> u64 {
    3 * buffer + FILES_LEN + has.min(compaction).saturating_sub(made)
}

/// RocksDB's write buffer unless it is set.
const WRITE_BUFFER_LEN: u64 = 64 << 20;
/// Smallest write buffer that a device's size asks for.
const WRITE_BUFFER_LEN_MIN: u64 = 256 << 10;
/// A buffer is at most such a share of the device: of one below this length, where room for keys counts for more than bytes
/// written by compactions, and of others, which experiments compare with Ceph.
const SMALL_LEN: u64 = 2 << 30;
const WRITE_BUFFER_SHARE_SMALL: u64 = 128;
const WRITE_BUFFER_SHARE: u64 = 32;

/// The value of a setting in RocksDB's options. Of one that comes twice the latter holds.
fn setting(options: &str, name: &str) -> Option<u64> {
    let mut depth = 0_u32;
    // Settings of a part (a table's) are in braces, perhaps under the same name.
    let parts = options.split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c == ';')
    });
    let values = parts.filter_map(|part| {
        let (key, value) = part.split_once('=')?;
        (key.trim() == name).then(|| value.trim())
    });
    number(values.last()?)
}

/// A number as RocksDB reads it: digits, and perhaps a letter for a power of 1024.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let factor = match rest.chars().next() {
        Some('k' | 'K') => 1 << 10,
        Some('m' | 'M') => 1 << 20,
        Some('g' | 'G') => 1 << 30,
        Some('t' | 'T') => 1 << 40,
        _ => 1,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Write buffers in a compaction by our bounds. Level 0 has at most the eight tables that stop writes, each a
/// little more than a buffer, and goes first only while it is as full, by RocksDB's score of both
/// (`VersionStorageInfo::ComputeCompactionScore` in `db/version_set.cc` at v7.8.3), as level 1, whose base is
/// four buffers as its own: so that has no more.
const COMPACTION_BUFFERS: u64 = 18;
/// The same by RocksDB's own bounds.
const COMPACTION_BUFFERS_UNBOUND: u64 = 42;
/// What a table has beside its bytes, where space comes in units of so many.
const TABLE_ROUNDING: u64 = 64 << 10;
/// A device so many times as large as the latter needs no bounds.
const UNBOUND_SHARE: u64 = 16;

/// Settings for a database on a device of `len` bytes.
pub fn fitted(given: &RocksDbOptions, len: u64) -> Fitted {
    let wanted = setting(&given.options, "write_buffer_size").unwrap_or(WRITE_BUFFER_LEN);
    let share = if len < SMALL_LEN { WRITE_BUFFER_SHARE_SMALL } else { WRITE_BUFFER_SHARE };
    let buffer = wanted.min((len / share).max(WRITE_BUFFER_LEN_MIN));
    let unbound = COMPACTION_BUFFERS_UNBOUND * buffer;
    let mut options = given.clone();
    // Of a setting that comes twice the latter holds.
    if !options.options.is_empty() {
        options.options.push(',');
    }
    // RocksDB 7.8 takes in all tables that lie between, however many; the one of Ceph 16.2 knew no such thing.
    options.options += "ignore_max_compaction_bytes_for_input=false";
    if buffer == wanted && unbound <= len / UNBOUND_SHARE {
        return Fitted { options, buffer, compaction: unbound };
    }
    // Compactions must find room, too: so few tables in level 0, and one compaction at a time; and no logs
    // are kept for being written again.
    options.options += &format!(
        ",write_buffer_size={buffer},max_write_buffer_number=2,recycle_log_file_num=0,\
         target_file_size_base={buffer},max_bytes_for_level_base={base},\
         level0_file_num_compaction_trigger=4,level0_slowdown_writes_trigger=6,\
         level0_stop_writes_trigger=8,max_background_compactions=1,max_compaction_bytes={base}",
        base = 4 * buffer
    );
    Fitted { options, buffer, compaction: COMPACTION_BUFFERS * (buffer + TABLE_ROUNDING) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A size with a suffix counted as not set and of one given twice the first counted: RocksDB had write
    /// buffers of another size than room was kept for.
    #[test]
    fn settings_are_read_as_rocksdb_does() {
        let of = |options: &str| setting(options, "write_buffer_size");
        assert_eq!(of("write_buffer_size=128M"), Some(128 << 20));
        assert_eq!(of("max_write_buffer_number=4; write_buffer_size = 16k"), Some(16 << 10));
        assert_eq!(of("write_buffer_size=1g,write_buffer_size=5"), Some(5));
        assert_eq!(of("a={write_buffer_size=7;b=1},write_buffer_size=2T"), Some(2 << 40));
        assert_eq!(of("write_buffer_size=3,a={b=1,write_buffer_size=7}"), Some(3));
        assert_eq!(of("max_write_buffer_number=4"), None);
        assert_eq!(of("write_buffer_size=99999999999t"), None);
        let given = RocksDbOptions {
            options: "write_buffer_size=64M,write_buffer_size=256M".into(),
            ..RocksDbOptions::default()
        };
        assert_eq!(fitted(&given, 1 << 40).buffer, 256 << 20);
    }

    #[test]
    fn buffers_fit_the_device() {
        let given = RocksDbOptions {
            options: "compression=kNoCompression,write_buffer_size=268435456".into(),
            ..RocksDbOptions::default()
        };
        let input = "ignore_max_compaction_bytes_for_input=false";
        let large = fitted(&given, 1 << 40);
        assert_eq!(large.options.options, format!("{},{input}", given.options));
        assert_eq!(large.buffer, 256 << 20);
        let small = fitted(&given, 1 << 30);
        assert_eq!(small.buffer, 8 << 20);
        assert!(small.options.options.contains(",write_buffer_size=8388608,"));
        assert_eq!(fitted(&given, 1 << 20).buffer, 256 << 10);
        assert_eq!(fitted(&given, 4 << 30).buffer, 128 << 20);
        let default = fitted(&RocksDbOptions::default(), 100 << 30);
        assert_eq!((default.options.options.as_str(), default.buffer), (input, 64 << 20));
        // Buffers that are small enough, and too many of them.
        let bounds = fitted(&given, 40 << 30);
        assert_eq!(bounds.buffer, 256 << 20);
        assert!(bounds.options.options.contains(",level0_stop_writes_trigger=8,"));
        // Unless it is said compactions take in all that lies between, which was half of a store of 24 MiB.
        assert!(bounds.options.options.contains(input));
    }

    /// A store full of omap did not open again after a kill: what a compaction had made of what it may make counted
    /// for the log and for flushes, too.
    #[test]
    fn what_a_compaction_has_made_is_room_for_nothing_else() {
        let least = need(1 << 20, 0, 0, 0);
        assert_eq!(need(1 << 20, 18 << 20, 100 << 20, 0), least + (18 << 20));
        assert_eq!(need(1 << 20, 18 << 20, 100 << 20, 10 << 20), least + (8 << 20));
        assert_eq!(need(1 << 20, 18 << 20, 5 << 20, 0), least + (5 << 20));
        assert_eq!(need(1 << 20, 18 << 20, 100 << 20, 50 << 20), least);
    }
}
