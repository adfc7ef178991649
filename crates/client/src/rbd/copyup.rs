//! What an object of a clone is made of when it is first written: the parent's bytes without
//! their zeros, so that holes stay holes (`sparse_copyup` of the class `rbd`, as
//! `src/librbd/io/CopyupRequest.cc` at v16.2 asks for it). The class does nothing where the object
//! is there by now.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use types::BufferList;

use super::image::{Image, View};
use crate::{ClientError, Operation};

/// Zeros are left out in units of so many bytes, which stores keep holes in.
const BLOCK: usize = 4096;

/// Bytes of an object: none where they are zeros, and none behind the last that is not.
pub(crate) struct CopyUp {
    /// Offset to length; they follow one another in `data`.
    extents: BTreeMap<u64, u64>,
    data: Bytes,
}

impl CopyUp {
    fn of(list: &BufferList) -> CopyUp {
        let all = list.to_contiguous();
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for (i, block) in all.chunks(BLOCK).enumerate() {
            let Some(last) = block.iter().rposition(|b| *b != 0) else { continue };
            let (start, end) = (i * BLOCK, i * BLOCK + last + 1);
            match runs.last_mut() {
                // A block that ends in zeros goes as a whole when the next one follows.
                Some(run) if run.end.next_multiple_of(BLOCK) == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        let data = match &runs[..] {
            [run] => all.slice(run.clone()),
            _ => {
                let mut data = BytesMut::with_capacity(runs.iter().map(|run| run.len()).sum());
                runs.iter().for_each(|run| data.extend_from_slice(&all[run.clone()]));
                data.freeze()
            }
        };
        let extents = runs.iter().map(|run| (run.start as u64, run.len() as u64)).collect();
        CopyUp { extents, data }
    }

    /// Nothing but zeros.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }
}

impl Operation {
    /// Makes the object of these bytes, unless it is there.
    pub(crate) fn copy_up(self, copy: &CopyUp) -> Operation {
        self.rbd_write("sparse_copyup", |w| {
            w.put(&copy.extents);
            w.put(&copy.data);
        })
    }
}

impl Image {
    /// The parent's bytes below `prefix` of an object.
    pub(crate) async fn parent_data(
        &self,
        view: &View,
        object: u64,
        prefix: u64,
    ) -> Result<CopyUp, ClientError> {
        Ok(CopyUp::of(&self.read_parent(view, object, 0, prefix).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_of(data: Vec<u8>) -> (Vec<(u64, u64)>, Bytes) {
        let mut list = BufferList::new();
        // Pieces that do not end where blocks do.
        data.chunks(1000).for_each(|piece| list.push(Bytes::copy_from_slice(piece)));
        let copy = CopyUp::of(&list);
        (copy.extents.into_iter().collect(), copy.data)
    }

    #[test]
    fn zeros_are_left_out() {
        assert_eq!(copy_of(vec![]), (vec![], Bytes::new()));
        assert_eq!(copy_of(vec![0; 9000]), (vec![], Bytes::new()));
        let mut data = vec![0; 10 * BLOCK];
        data[BLOCK] = 1;
        data[2 * BLOCK + 5] = 2;
        data[7 * BLOCK + 9] = 3;
        let (extents, bytes) = copy_of(data.clone());
        let (first, second) = ((BLOCK, BLOCK + 6), (7 * BLOCK, 10));
        assert_eq!(extents, [first, second].map(|(at, len)| (at as u64, len as u64)));
        let mut again = vec![0; data.len()];
        let (mut from, all) = (0, bytes);
        for (at, len) in [first, second] {
            again[at..at + len].copy_from_slice(&all[from..from + len]);
            from += len;
        }
        assert_eq!((again == data, from), (true, all.len()));
    }
}
