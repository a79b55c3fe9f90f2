//! The page's files, as they are in the repository (`page/`), and `verdicts.js`, the explanations of
//! the verdicts, which is made from the table of verdicts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use datapath::Verdict;

use control::http_message::HttpResponse;

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

const VERDICTS: &str = "/verdicts.js";

/// Returns the script with the explanation of each verdict, by name.
fn verdicts_script() -> String {
    let explain = |v: Verdict| (v.name(), v.help().replace('`', ""));
    let all: BTreeMap<_, _> = Verdict::ALL.into_iter().map(explain).collect();
    format!("export const VERDICTS = {};\n", serde_json::json!(all))
}

/// Returns a file, or the response 404.
pub(super) fn find(path: &str) -> HttpResponse {
    if path == VERDICTS {
        return HttpResponse { status: 200, kind: SCRIPT, body: verdicts_script().into() };
    }
    match FILES.iter().find(|(name, ..)| *name == path) {
        Some(&(_, kind, text)) => HttpResponse { status: 200, kind, body: Cow::Borrowed(text) },
        None => {
            HttpResponse::text(404, "no such path: the page is at /, the metrics are at /metrics")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{FILES, VERDICTS, find};
    use datapath::Verdict;

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
                assert_eq!(find(&name).status, 200, "{path} names {name}");
            }
        }
    }

    #[test]
    fn page_explains_every_verdict() {
        let script = find(VERDICTS).body;
        let (_, all) = script.trim_end().trim_end_matches(';').split_once(" = ").unwrap();
        let all: BTreeMap<String, String> = serde_json::from_str(all).unwrap();
        assert_eq!(all.len(), Verdict::COUNT);
        assert_eq!(all["bad_checksum"], Verdict::BadChecksum.help());
        assert!(all.values().all(|help| !help.is_empty() && !help.contains('`')));
    }
}
