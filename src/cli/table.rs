//! Tables in the output of commands.

use crate::util::escape::escape_control;

/// Rows in columns. The last column is not padded.
pub(super) fn table<const N: usize>(rows: &[[String; N]], indent: &str) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", escape_control(cell)));
        format!("{indent}{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
