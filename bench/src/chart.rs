//! A bar chart on a logarithmic scale, as SVG for the manual.

use std::fmt::{self, Write as _};

use crate::table::shown;

/// The width of the chart.
const WIDTH: f64 = 760.0;
/// The horizontal offset of the bars.
const LEFT: f64 = 110.0;
/// The maximum length of a bar.
const LENGTH: f64 = 560.0;
const BAR: f64 = 16.0;
const GAP: f64 = 4.0;
const HEADING: f64 = 30.0;

/// Groups of bars.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) groups: Vec<Group>,
}

/// Bars that are compared with each other.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) emphasis: Emphasis,
}

/// The style of a bar.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emphasis {
    /// For Libris.
    Strong,
    /// For the limit.
    Weak,
    /// For other servers.
    Plain,
}

impl Chart {
    /// The exponents of the powers of ten between which all values are. The lower one is at most 0, so that no bar has
    /// the length 0.
    fn range(&self) -> (f64, f64) {
        let values = || self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value.log10());
        let least = values().fold(0.0, f64::min).floor();
        let most = values().fold(f64::NEG_INFINITY, f64::max).ceil();
        (least, most.max(least + 1.0))
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.range();
        let place = |exponent: f64| LEFT + LENGTH * (exponent - least) / (most - least);
        let mut y = 44.0;
        let mut body = String::new();
        for Group { name, bars } in &self.groups {
            y += HEADING;
            writeln!(
                body,
                "  <text class=\"group\" x=\"{LEFT}\" y=\"{:.0}\">{}</text>",
                y - 8.0,
                escaped(name)
            )?;
            for Bar { name, value, emphasis } in bars {
                let class = match emphasis {
                    Emphasis::Strong => "strong",
                    Emphasis::Weak => "weak",
                    Emphasis::Plain => "plain",
                };
                let end = place(value.log10());
                let text = y + BAR - 4.0;
                writeln!(
                    body,
                    "  <text class=\"name\" x=\"{:.0}\" y=\"{text:.0}\">{}</text>\n  \
                     <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\n  \
                     <text x=\"{:.1}\" y=\"{text:.0}\">{}</text>",
                    LEFT - 8.0,
                    escaped(name),
                    (end - LEFT).max(1.0),
                    end + 6.0,
                    shown(*value),
                )?;
                y += BAR + GAP;
            }
        }
        let height = y + 30.0;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-label=\"{title}\">\n  <title>{title}</title>\n  <style>\n    \
             text {{ font: 12px system-ui, sans-serif; fill: #57606a; }}\n    \
             .title {{ font-size: 15px; font-weight: 600; }}\n    .group {{ font-weight: 600; }}\n    \
             .name {{ text-anchor: end; }}\n    .scale {{ text-anchor: middle; font-size: 11px; }}\n    \
             line {{ stroke: #8b949e; stroke-opacity: 0.3; }}\n    .strong {{ fill: #2f81f7; }}\n    \
             .weak {{ fill: #8b949e; fill-opacity: 0.5; }}\n    .plain {{ fill: #8b949e; }}\n    \
             @media (prefers-color-scheme: dark) {{ text {{ fill: #c9d1d9; }} }}\n  </style>\n  \
             <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>",
            title = escaped(&self.title),
        )?;
        let mut exponent = least;
        while exponent <= most {
            let x = place(exponent);
            writeln!(
                out,
                "  <line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"44\" y2=\"{:.0}\"/>\n  \
                 <text class=\"scale\" x=\"{x:.1}\" y=\"{:.0}\">{} {}</text>",
                y + 4.0,
                y + 20.0,
                shown(10_f64.powf(exponent)),
                self.unit,
            )?;
            exponent += 1.0;
        }
        writeln!(out, "{body}</svg>")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Bar, Chart, Emphasis, Group};

    #[test]
    fn a_bar_ends_where_its_value_is() {
        let bar = |name, value| Bar { name, value, emphasis: Emphasis::Plain };
        let group =
            Group { name: "read <1 KiB>".to_owned(), bars: vec![bar("one", 10.0), bar("two", 100.0)] };
        let chart = Chart { title: "Costs".to_owned(), unit: "µs", groups: vec![group] };
        let picture = chart.to_string();
        assert!(picture.contains("read &lt;1 KiB>"));
        assert!(picture.contains("width=\"560.0\""), "the longest goes to the end: {picture}");
        assert!(picture.contains(">100 µs</text>"));
    }
}
