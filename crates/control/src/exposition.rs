//! Writes families of metrics with `prometheus-client`, and converts OpenMetrics to the older text
//! format.

use std::collections::HashSet;
use std::fmt;
use std::fmt::Write;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// A family of metrics.
pub struct Family<'a> {
    /// The name without the unit and `_total`.
    pub name: &'a str,
    /// The HELP text.
    pub help: &'a str,
    /// The unit, which becomes part of the name.
    pub unit: Option<Unit>,
}

/// Returns a family without a unit.
pub fn family<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, help, unit: None }
}

/// Returns a family in bytes.
pub fn bytes<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, help, unit: Some(Unit::Bytes) }
}

/// The labels of one metric, and its value.
pub(crate) type Value<'a, const N: usize, T = u64> = ([(&'static str, &'a str); N], T);

/// Writes families.
pub struct Writer<'a>(pub DescriptorEncoder<'a>);

impl Writer<'_> {
    /// Writes a counter.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    pub fn counter<'v, const N: usize>(
        &mut self,
        metric: &Family<'_>,
        values: impl IntoIterator<Item = Value<'v, N>>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut family =
            self.0.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstCounter::new(value).encode(family);
            }
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a counter that has fractions.
    pub(crate) fn total(&mut self, metric: &Family<'_>, value: Option<f64>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let kind = MetricType::Counter;
        let family =
            self.0.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
        ConstCounter::new(value).encode(family)
    }

    /// Writes a gauge.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    pub fn gauge<'v, const N: usize>(
        &mut self,
        metric: &Family<'_>,
        values: impl IntoIterator<Item = Value<'v, N>>,
    ) -> fmt::Result {
        // A float: the crate's integers are signed, and these are below 2^53.
        self.level(metric, values.into_iter().map(|(labels, value)| (labels, value as f64)))
    }

    /// Writes a gauge that has fractions.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    pub fn level<'v, const N: usize>(
        &mut self,
        metric: &Family<'_>,
        values: impl IntoIterator<Item = Value<'v, N, f64>>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut family =
            self.0.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
        for (labels, value) in values {
            if N == 0 {
                return ConstGauge::new(value).encode(family);
            }
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Converts OpenMetrics to the text format 0.0.4: the family of a counter has the name of its
/// samples, and there are no lines for units and for the end.
pub(crate) fn classic(openmetrics: &str) -> String {
    let word = |line: &str, at: usize| line.split(' ').nth(at).unwrap_or_default().to_owned();
    let types = openmetrics.lines().filter(|line| line.starts_with("# TYPE "));
    let counters: HashSet<String> =
        types.filter(|line| word(line, 3) == "counter").map(|line| word(line, 2)).collect();
    let mut text = String::with_capacity(openmetrics.len() + 64 * counters.len());
    for line in openmetrics.lines() {
        let is_header = line.starts_with("# HELP ") || line.starts_with("# TYPE ");
        let name = word(line, 2);
        if is_header && counters.contains(&name) {
            let rest = &line["# HELP ".len() + name.len()..];
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}{name}_total{rest}", &line[.."# HELP ".len()]);
        } else if is_header || !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
