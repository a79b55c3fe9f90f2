//! Reports as one page of HTML that needs nothing else: `bench run`, `lab ddos`.
//!
//! Style and plots are within it, there is no script, and it is readable in light and dark as
//! the reader's system has it (`page.css`, `plot.rs`).

use std::fmt::Write;

pub(crate) mod plot;

use plot::escape;

const STYLE: &str = include_str!("page.css");

/// The page, of what stands in it.
pub(crate) fn whole(title: &str, parts: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>\n{STYLE}</style></head><body><main>{parts}</main></body></html>\n",
        escape(title)
    )
}

/// A table: its columns, and rows with a class.
pub(crate) fn table(columns: &[&str], rows: &[(&str, Vec<String>)]) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr>".to_owned();
    for column in columns {
        let _ = write!(text, "<th>{}</th>", escape(column));
    }
    text += "</tr></thead><tbody>";
    for (class, cells) in rows {
        let _ = write!(text, "<tr class=\"{class}\">");
        for cell in cells {
            // Sentences are set as such, figures in columns.
            let class = if cell.chars().count() > 40 { " class=\"text\"" } else { "" };
            let _ = write!(text, "<td{class}>{}</td>", escape(cell));
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

/// A plot with what it shows.
pub(crate) fn figure(caption: &str, plot: &str) -> String {
    format!("<figure><figcaption>{caption}</figcaption>{plot}</figure>")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn what_others_say_of_themselves_is_text() {
        let text = table(&["a"], &[("ours", vec!["<script>".to_owned()])]);
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"));
    }
}
