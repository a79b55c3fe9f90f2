//! How a program ends: an error and its causes in one line, and a closed pipe, which is no error.

use std::io::ErrorKind;

/// Formats an error and its causes in one line. Skips a cause that the text before it includes.
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns whether `error` is a closed pipe on standard output.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::{explain, is_broken_pipe};

    #[test]
    fn explain_skips_repeated_causes() {
        let error = anyhow::anyhow!("no such file").context("x.txt: no such file");
        assert_eq!(explain(&error), "x.txt: no such file");
        assert_eq!(explain(&error.context("loading")), "loading: x.txt: no such file");
    }

    #[test]
    fn only_a_broken_pipe_is_quiet() {
        let error = |kind| anyhow::Error::from(std::io::Error::from(kind)).context("writing");
        assert!(is_broken_pipe(&error(std::io::ErrorKind::BrokenPipe)));
        assert!(!is_broken_pipe(&error(std::io::ErrorKind::NotFound)));
        assert!(!is_broken_pipe(&anyhow::anyhow!("broken pipe")));
    }
}
