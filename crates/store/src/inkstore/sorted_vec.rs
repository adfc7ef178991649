//! A small ordered map in one allocation. Most objects have three xattrs, for which a tree's nodes
//! would take several times the memory of what is in them.

use std::borrow::Borrow;

/// Keys and values in the order of the keys. Insertion moves what lies behind.
#[derive(Debug, Clone)]
pub(super) struct SortedVec<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedVec<K, V> {
    fn default() -> Self {
        SortedVec(Vec::new())
    }
}

impl<K: Ord, V> SortedVec<K, V> {
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        // Usually what is looked for is the last, or behind it.
        match self.0.last() {
            Some((last, _)) if last.borrow() < key => Err(self.0.len()),
            None => Err(0),
            _ => self.0.binary_search_by(|(k, _)| k.borrow().cmp(key)),
        }
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                if self.0.len() == self.0.capacity() {
                    self.0.reserve_exact(1 + self.0.len() / 8);
                }
                self.0.insert(at, (key, value));
            }
        }
    }

    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}
