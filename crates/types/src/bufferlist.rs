//! A run of bytes in pieces: payloads travel by reference, never joined unless asked.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::page_sums::{PAGE, PageSums};

/// Pieces of shared memory in order. Empty pieces are never kept.
#[derive(Debug, Clone, Default)]
pub struct BufferList {
    pieces: SmallVec<[Bytes; 2]>,
    len: usize,
    /// Checksums known of one piece.
    sums: Option<PageSums>,
}

impl BufferList {
    /// No bytes.
    pub fn new() -> BufferList {
        BufferList::default()
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece by reference.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Appends another list's pieces by reference.
    pub fn append(&mut self, other: &BufferList) {
        self.len += other.len;
        self.pieces.extend(other.pieces.iter().cloned());
        if self.sums.is_none() {
            self.sums.clone_from(&other.sums);
        }
    }

    /// The same bytes, of which these checksums are known.
    pub fn with_sums(self, sums: Option<PageSums>) -> BufferList {
        BufferList { sums, ..self }
    }

    /// Checksums known of one piece.
    pub fn sums(&self) -> Option<&PageSums> {
        self.sums.as_ref()
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Where in a page the first byte must lie for those pages to be whole whose checksums are known,
    /// or for the longest piece to begin a page.
    pub fn page_offset(&self) -> u16 {
        if let ([all], Some(sums)) = (&self.pieces[..], &self.sums)
            && let Some(offset) = sums.page_offset(all)
        {
            return offset as u16;
        }
        let Some(longest) = self.pieces.iter().map(Bytes::len).max() else { return 0 };
        let before = self.pieces.iter().map(Bytes::len).take_while(|len| *len < longest);
        (PAGE - before.sum::<usize>() % PAGE) as u16 % PAGE as u16
    }

    /// All bytes in one buffer: free for up to one piece, a copy for more.
    pub fn to_contiguous(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut joined = BytesMut::with_capacity(self.len);
                many.iter().for_each(|piece| joined.extend_from_slice(piece));
                joined.freeze()
            }
        }
    }

    /// The same bytes in this copy of all of them, with what is known of their checksums.
    pub fn copied_to(&self, copy: Bytes) -> BufferList {
        debug_assert_eq!(copy.len(), self.len);
        let mut at = 0;
        let sums = self.sums.as_ref().and_then(|sums| {
            self.pieces.iter().find_map(|piece| {
                at += piece.len();
                sums.of_copy(piece, copy.clone(), at - piece.len())
            })
        });
        BufferList::from(copy).with_sums(sums)
    }

    /// Bytes `from..from + len` by reference; what lies past the end is left out.
    pub fn slice(&self, from: usize, len: usize) -> BufferList {
        let mut out = BufferList::new();
        let end = from.saturating_add(len);
        let mut at = 0;
        for piece in &self.pieces {
            let piece_end = at + piece.len();
            if piece_end > from && at < end {
                out.push(piece.slice(from.saturating_sub(at)..end.min(piece_end) - at));
            }
            at = piece_end;
        }
        out
    }

    /// Checksum over all pieces, continuing from `seed`.
    pub fn crc32c(&self, seed: u32) -> u32 {
        crc32c_of(seed, &self.pieces, self.sums.as_ref())
    }
}

/// crc32c of pieces one behind the other, from what is known of one where it is.
pub fn crc32c_of(seed: u32, pieces: &[Bytes], sums: Option<&PageSums>) -> u32 {
    pieces.iter().fold(seed, |crc, piece| {
        let known = sums.and_then(|sums| sums.crc32c(crc, piece));
        known.unwrap_or_else(|| crate::crc::crc32c(crc, piece))
    })
}

impl From<Bytes> for BufferList {
    fn from(bytes: Bytes) -> BufferList {
        let mut list = BufferList::new();
        list.push(bytes);
        list
    }
}

impl From<Vec<u8>> for BufferList {
    fn from(bytes: Vec<u8>) -> BufferList {
        BufferList::from(Bytes::from(bytes))
    }
}

impl FromIterator<Bytes> for BufferList {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> BufferList {
        let mut list = BufferList::new();
        pieces.into_iter().for_each(|piece| list.push(piece));
        list
    }
}

/// Same bytes, however they are cut.
impl PartialEq for BufferList {
    fn eq(&self, other: &BufferList) -> bool {
        self.len == other.len && self.pieces.iter().flatten().eq(other.pieces.iter().flatten())
    }
}

impl Eq for BufferList {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_piece_begins_a_page() {
        let list = |lens: &[usize]| -> BufferList {
            lens.iter().map(|len| Bytes::from(vec![0; *len])).collect()
        };
        assert_eq!(list(&[]).page_offset(), 0);
        assert_eq!(list(&[5000]).page_offset(), 0);
        assert_eq!(list(&[14, 5000, 300]).page_offset(), 4096 - 14);
        assert_eq!(list(&[4096, 5000]).page_offset(), 0);
        assert_eq!(list(&[5000, 14, 6000, 6000]).page_offset(), 8192 - 5014);
    }

    #[test]
    fn slices_across_pieces() {
        let list: BufferList =
            [&b"hello"[..], b"", b" ", b"world"].into_iter().map(Bytes::from_static).collect();
        assert_eq!(list.pieces().len(), 3);
        assert_eq!(&list.slice(3, 5).to_contiguous()[..], b"lo wo");
        assert_eq!(&list.slice(9, 100).to_contiguous()[..], b"ld");
        assert!(list.slice(11, 1).is_empty());
        assert_eq!(list, BufferList::from(list.to_contiguous()));
    }
}
