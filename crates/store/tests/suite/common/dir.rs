//! Folders of tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that goes when the test ends.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Dir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("loligo-store-{name}-{}-{next}", std::process::id());
        // In memory if there is such a place: syncs cost nothing there, and prove nothing anywhere.
        let memory = PathBuf::from("/dev/shm");
        let above = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = above.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
