//! Self-contained HTML pages of results (`fingerpost-bench run`, `fingerpost lab ddos`).
//!
//! A page contains its style and its plots (`page.css`, `plot.rs`), has no scripts, and follows the
//! light or dark mode of the reader's system.

use std::fmt::Write;

use crate::plot::escape;

const STYLE: &str = include_str!("page.css");

/// Returns a page with a title and a body.
pub fn html_page(title: &str, parts: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>\n{STYLE}</style></head><body><main>{parts}</main></body></html>\n",
        escape(title)
    )
}

/// Returns a table of columns and rows; each row has a CSS class.
pub fn table(columns: &[&str], rows: &[(&str, Vec<String>)]) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr>".to_owned();
    for column in columns {
        let _ = write!(text, "<th>{}</th>", escape(column));
    }
    text += "</tr></thead><tbody>";
    for (class, cells) in rows {
        let _ = write!(text, "<tr class=\"{class}\">");
        for cell in cells {
            // Sentences are set as text, numbers in columns.
            let class = if cell.chars().count() > 40 { " class=\"text\"" } else { "" };
            let _ = write!(text, "<td{class}>{}</td>", escape(cell));
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

/// Returns a plot with its caption.
pub fn figure(caption: &str, plot: &str) -> String {
    format!("<figure><figcaption>{caption}</figcaption>{plot}</figure>")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn table_escapes_its_cells() {
        let text = table(&["a"], &[("ours", vec!["<script>".to_owned()])]);
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"));
    }
}
