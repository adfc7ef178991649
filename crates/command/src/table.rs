//! Text tables with padded columns (`src/common/TextTable.cc` at v16.2): columns are two spaces
//! apart and every cell, the last one too, is padded to its column's width.

use std::fmt;

/// Where a cell stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left end.
    Left,
    /// In the middle.
    Center,
    /// At the right end.
    Right,
}

#[derive(Debug, Clone)]
struct Column {
    heading: String,
    width: usize,
    heading_align: Align,
    cell_align: Align,
}

/// A table under construction. Printing gives the heading line and one line a row.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    indent: usize,
    separation: Option<&'static str>,
}

impl TextTable {
    /// A table without columns.
    pub fn new() -> TextTable {
        TextTable::default()
    }

    /// Adds a column.
    pub fn define_column(&mut self, heading: &str, heading_align: Align, cell_align: Align) {
        self.columns.push(Column {
            heading: heading.to_string(),
            width: heading.chars().count(),
            heading_align,
            cell_align,
        });
    }

    /// Spaces put before every cell.
    pub fn indent(&mut self, indent: usize) {
        self.indent = indent;
    }

    /// Text between columns, two spaces if not set.
    pub fn separation(&mut self, separation: &'static str) {
        self.separation = Some(separation);
    }

    /// Adds a row; missing cells are empty, cells past the last column are dropped.
    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut row: Vec<String> =
            cells.into_iter().take(self.columns.len()).map(Into::into).collect();
        row.resize(self.columns.len(), String::new());
        for (column, cell) in self.columns.iter_mut().zip(&row) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(row);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn pad(out: &mut fmt::Formatter<'_>, text: &str, width: usize, align: Align) -> fmt::Result {
    let len = text.chars().count();
    let spare = width.saturating_sub(len);
    let left = match align {
        Align::Left => 0,
        Align::Center => (width / 2).saturating_sub(len / 2),
        Align::Right => spare,
    };
    write!(out, "{:left$}{text}{:right$}", "", "", right = spare.saturating_sub(left))
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separation = self.separation.unwrap_or("  ");
        for (i, c) in self.columns.iter().enumerate() {
            let before = if i == 0 { "" } else { separation };
            write!(f, "{before}{:indent$}", "", indent = self.indent)?;
            pad(f, &c.heading, c.width, c.heading_align)?;
        }
        writeln!(f)?;
        for row in &self.rows {
            for (i, (c, cell)) in self.columns.iter().zip(row).enumerate() {
                let before = if i == 0 { "" } else { separation };
                write!(f, "{before}{:indent$}", "", indent = self.indent)?;
                pad(f, cell, c.width, c.cell_align)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_column_is_padded_too() {
        let mut t = TextTable::new();
        t.define_column("ID", Align::Left, Align::Right);
        t.define_column("TYPE NAME", Align::Left, Align::Left);
        t.row(["-1", "root default"]);
        t.row(["0", "osd.0"]);
        assert_eq!(t.to_string(), "ID  TYPE NAME   \n-1  root default\n 0  osd.0       \n");
    }
}
