//! Compiles a filter by tcpdump, so that it means what it means there (decision 0061).

use std::io::ErrorKind;
use std::process::Command;

use anyhow::{Context, bail};

/// Compiles an expression (pcap-filter(7)) for Ethernet.
///
/// # Errors
///
/// tcpdump is missing or does not accept the expression.
pub(crate) fn compile(expression: &str) -> anyhow::Result<Vec<(u16, u8, u8, u32)>> {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-y", "EN10MB", "-ddd", "--", expression]);
    let output = match tcpdump.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "a filter needs tcpdump, which compiles it: install tcpdump, or capture without a filter"
        ),
        other => other.context("starting tcpdump to compile the filter")?,
    };
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.trim().trim_start_matches("tcpdump: ");
        bail!("filter {expression:?}: {reason}; see pcap-filter(7)");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| format!("filter {expression:?}: unexpected output of tcpdump"))
}

/// Parses the output of `tcpdump -ddd`: the number of instructions, and a line for each.
fn parse(text: &str) -> Option<Vec<(u16, u8, u8, u32)>> {
    let mut lines = text.lines();
    let count: usize = lines.next()?.trim().parse().ok()?;
    let instruction = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let mut next = || fields.next()?.parse::<u32>().ok();
        let (code, if_true, if_false, k) = (next()?, next()?, next()?, next()?);
        Some((code.try_into().ok()?, if_true.try_into().ok()?, if_false.try_into().ok()?, k))
    };
    let program: Vec<_> = lines.map(instruction).collect::<Option<_>>()?;
    (program.len() == count).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn program_of_tcpdump_is_parsed() {
        let program = parse("2\n40 0 0 12\n6 0 0 4294967295\n");
        assert_eq!(program, Some(vec![(40, 0, 0, 12), (6, 0, 0, u32::MAX)]));
        for invalid in ["", "3\n6 0 0 0\n", "1\n6 0 0\n", "1\n6 0 256 0\n"] {
            assert_eq!(parse(invalid), None, "{invalid:?}");
        }
    }
}
