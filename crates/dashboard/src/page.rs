//! The page's files, as they are in the repository (`page/`).

use std::borrow::Cow;

use control::http::HttpResponse;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The path of each file, its media type and its content.
const FILES: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("page/page.html")),
    ("/icon.svg", IMAGE, include_str!("page/icon.svg")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/grantor.js", SCRIPT, include_str!("page/grantor.js")),
    ("/policy.js", SCRIPT, include_str!("page/policy.js")),
    ("/draw.js", SCRIPT, include_str!("page/draw.js")),
    ("/store.js", SCRIPT, include_str!("page/store.js")),
    ("/words.js", SCRIPT, include_str!("page/words.js")),
];

/// Returns a file, or the response 404.
pub(super) fn find(path: &str) -> HttpResponse {
    match FILES.iter().find(|(name, ..)| *name == path) {
        Some(&(_, kind, text)) => HttpResponse { status: 200, kind, body: Cow::Borrowed(text) },
        None => {
            HttpResponse::text(404, "no such path: the page is at /, the metrics are at /metrics")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FILES;

    #[test]
    fn page_loads_nothing_from_other_servers_and_makes_no_html_of_text() {
        for (path, _, text) in FILES {
            for bad in [
                "http:",
                "https:",
                "innerHTML",
                "outerHTML",
                "insertAdjacent",
                "eval(",
                "document.write",
                " style=",
                " onclick=",
                "javascript:",
            ] {
                let found = text.replace("http://www.w3.org/2000/svg", "").contains(bad);
                assert!(!found, "{path} has {bad}");
            }
        }
    }

    #[test]
    fn referenced_files_exist() {
        let named = |text: &str, before: &str| -> Vec<String> {
            let after = text.split(before).skip(1);
            after.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
        };
        for (path, _, text) in FILES {
            let mut all = named(text, "src=\"");
            all.extend(named(text, "rel=\"stylesheet\" href=\""));
            all.extend(named(text, "type=\"image/svg+xml\" href=\""));
            all.extend(named(text, "from \"."));
            for name in all {
                assert!(FILES.iter().any(|(own, ..)| *own == name), "{path} names {name}");
            }
        }
    }
}
