//! The results of a run, as Markdown tables and as JSON.

use std::fmt;

use serde_json::{Value, json};

use crate::chart::Chart;
use crate::machine;
use crate::table::{Table, shown};

/// The results of a run.
pub(crate) struct Report {
    date: String,
    machine: String,
    /// The load average before the run.
    load: f64,
    version: String,
    rows: Vec<Row>,
    tables: Vec<Table>,
    chart: Option<Chart>,
}

/// A measured number.
struct Row {
    /// The name of the measurement, stable across runs.
    name: String,
    value: f64,
    unit: &'static str,
    aim: Option<Aim>,
}

/// The target (aim) of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Aim {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Report {
    pub(crate) fn new(version: String) -> Self {
        let date = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        Self {
            date,
            machine: machine::description(),
            load: machine::load(),
            version,
            rows: Vec::new(),
            tables: Vec::new(),
            chart: None,
        }
    }

    /// Adds a number without a target.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.rows.push(Row { name: name.into(), value, unit, aim: None });
    }

    /// Adds a number with a target.
    pub(crate) fn judge(&mut self, name: impl Into<String>, value: f64, unit: &'static str, aim: Aim) {
        self.rows.push(Row { name: name.into(), value, unit, aim: Some(aim) });
    }

    /// Adds a ratio with a target, if the ratio was measured.
    pub(crate) fn judge_if_measured(&mut self, name: impl Into<String>, ratio: Option<f64>, aim: Aim) {
        if let Some(ratio) = ratio {
            self.judge(name, ratio, "×", aim);
        }
    }

    /// Adds a table of numbers without targets.
    pub(crate) fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Sets the chart.
    pub(crate) fn chart(&mut self, chart: Chart) {
        self.chart = Some(chart);
    }

    /// The chart; empty if there is none.
    pub(crate) fn picture(&self) -> String {
        self.chart.as_ref().map_or_else(String::new, Chart::to_string)
    }

    /// Whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.tables.is_empty()
    }

    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut object = json!({ "name": row.name, "value": row.value, "unit": row.unit });
            if let Some(aim) = row.aim {
                object["aim"] = match aim {
                    Aim::AtMost(most) => json!({ "atMost": most }),
                    Aim::AtLeast(least) => json!({ "atLeast": least }),
                };
                object["met"] = aim.met(row.value).into();
            }
            object
        });
        json!({
            "date": self.date,
            "machine": self.machine,
            "load": self.load,
            "version": self.version,
            "rows": rows.collect::<Vec<_>>(),
            "tables": self.tables.iter().map(Table::json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, machine, load, version, .. } = self;
        writeln!(out, "{version}, {date}, {machine}, load {load} at the start\n")?;
        self.tables.iter().try_for_each(|table| writeln!(out, "{table}"))?;
        if !self.tables.is_empty() {
            writeln!(out, "### Aims\n")?;
        }
        writeln!(out, "| what | measured | aim | met |\n|---|--:|--:|---|")?;
        for Row { name, value, unit, aim } in &self.rows {
            let measured = format!("{} {unit}", shown(*value));
            let measured = measured.trim_end();
            let (aim, met) = match aim {
                None => (String::new(), ""),
                Some(aim) => {
                    let (sign, bound) = match aim {
                        Aim::AtMost(most) => ("≤", most),
                        Aim::AtLeast(least) => ("≥", least),
                    };
                    let bound = format!("{bound} {unit}");
                    (format!("{sign} {}", bound.trim_end()), if aim.met(*value) { "yes" } else { "**no**" })
                }
            };
            writeln!(out, "| {name} | {measured} | {aim} | {met} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Aim, Report};

    #[test]
    fn a_report_is_a_table_and_an_object() {
        let mut report = Report::new("libris 1.2.3".to_owned());
        (report.date, report.machine, report.load) = ("today".to_owned(), "a machine".to_owned(), 0.5);
        report.add("streams", 10_000.0, "");
        report.judge("memory", 12.345, "KiB", Aim::AtMost(20.0));
        report.judge("ratio", 0.5, "", Aim::AtLeast(0.8));
        let table = "libris 1.2.3, today, a machine, load 0.5 at the start\n\n\
            | what | measured | aim | met |\n|---|--:|--:|---|\n\
            | streams | 10,000 |  |  |\n\
            | memory | 12.3 KiB | ≤ 20 KiB | yes |\n\
            | ratio | 0.50 | ≥ 0.8 | **no** |\n";
        assert_eq!(report.to_string(), table);
        let last = &report.json()["rows"][2];
        assert_eq!(last["aim"]["atLeast"], 0.8);
        assert_eq!(last["met"], false);
    }
}
