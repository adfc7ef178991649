//! The hierarchy in the order dumps show it (`src/crush/CrushTreeDumper.h` at v16.2).

use crate::map::CrushMap;

/// One line of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeItem {
    /// Device or bucket.
    pub id: i32,
    /// The bucket that holds it, 0 for a root.
    pub parent: i32,
    /// Levels below the root.
    pub depth: usize,
    /// Weight there, 16.16.
    pub weight: u32,
    /// What it holds, last in display order first, as dumps list it.
    pub children: Vec<i32>,
}

impl CrushMap {
    /// Every item below every root, parents before children, siblings by class and name.
    pub fn tree(&self, with_shadows: bool) -> Vec<TreeItem> {
        self.tree_filtered(&self.roots(with_shadows), |_| true)
    }

    /// Every item below these roots that `wanted` names.
    pub fn tree_filtered(&self, roots: &[i32], wanted: impl Fn(i32) -> bool) -> Vec<TreeItem> {
        let mut lines = Vec::new();
        for root in roots.iter().filter(|root| wanted(**root)) {
            let weight = self.bucket(*root).map_or(0, |b| b.weight);
            let mut todo =
                vec![TreeItem { id: *root, parent: 0, depth: 0, weight, children: Vec::new() }];
            while let Some(mut line) = todo.pop() {
                let depth = line.depth + 1;
                if depth <= self.buckets.len() + 1 {
                    for (id, weight) in self.sorted_children(line.id, &wanted).into_iter().rev() {
                        line.children.push(id);
                        todo.push(TreeItem {
                            id,
                            parent: line.id,
                            depth,
                            weight,
                            children: Vec::new(),
                        });
                    }
                }
                lines.push(line);
            }
        }
        lines
    }

    fn sorted_children(&self, bucket: i32, wanted: &impl Fn(i32) -> bool) -> Vec<(i32, u32)> {
        let Some(bucket) = self.bucket(bucket) else { return Vec::new() };
        let key = |id: i32| match id {
            0.. => format!("{}_osd.{id:08}", self.class_of(id).unwrap_or_default()),
            _ => format!("_{}", self.name_of(id).unwrap_or_default()),
        };
        let mut children: Vec<(i32, u32)> =
            bucket.weighted_items().into_iter().filter(|(id, _)| wanted(*id)).collect();
        children.sort_by_cached_key(|(id, _)| key(*id));
        children.dedup_by_key(|(id, _)| *id);
        children
    }
}
