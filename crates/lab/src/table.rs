//! Tables as text for a terminal, and as CSV.

/// Columns as wide as their widest entry; the first is left-aligned, numbers are right-aligned.
pub(crate) fn text(head: &[String], rows: &[Vec<String>]) -> String {
    let lines: Vec<&[String]> =
        std::iter::once(head).chain(rows.iter().map(Vec::as_slice)).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|s| s.chars().count()).max()
    };
    let widths: Vec<usize> = (0..head.len()).map(|c| width(c).unwrap_or(0)).collect();
    let mut all = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(n, (cell, width))| match n {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        all.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        all.push('\n');
    }
    all
}

/// Comma-separated; entries hold no commas or quotes by their making.
pub(crate) fn csv(head: &[String], rows: &[Vec<String>]) -> String {
    std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|line| line.join(",") + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let head = ["size".to_owned(), "WAF".to_owned()];
        let rows = [vec!["4K".to_owned(), "12.000".to_owned()]];
        assert_eq!(text(&head, &rows), "size     WAF\n4K    12.000\n");
        assert_eq!(csv(&head, &rows), "size,WAF\n4K,12.000\n");
    }
}
