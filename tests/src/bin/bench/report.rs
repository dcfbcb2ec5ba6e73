//! The table.

use serde_json::{Value, json};

/// What must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// For the record.
    None,
}

/// How a number is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    PerSecond,
    Times,
    Microseconds,
    Milliseconds,
    Bytes,
    Percent,
    Count,
}

/// One line of the table: the figures of the three, and the one that is judged.
#[derive(Debug)]
pub(crate) struct Line {
    row: &'static str,
    what: String,
    unit: Unit,
    figures: [Option<f64>; 3],
    judged: Option<f64>,
    judged_unit: Unit,
    goal: Goal,
}

impl Line {
    /// A line without figures yet.
    pub(crate) fn new(row: &'static str, what: impl Into<String>) -> Self {
        Self {
            row,
            what: what.into(),
            unit: Unit::Count,
            figures: [None; 3],
            judged: None,
            judged_unit: Unit::Count,
            goal: Goal::None,
        }
    }

    /// The figures of distlock, the raw store, and rslock.
    pub(crate) fn figures(mut self, unit: Unit, figures: [Option<f64>; 3]) -> Self {
        self.unit = unit;
        self.figures = figures;
        self
    }

    pub(crate) fn judge(mut self, unit: Unit, judged: Option<f64>, goal: Goal) -> Self {
        self.judged_unit = unit;
        self.judged = judged;
        self.goal = goal;
        self
    }

    fn reached(&self) -> Option<bool> {
        let judged = self.judged?;
        match self.goal {
            Goal::AtLeast(least) => Some(judged >= least),
            Goal::AtMost(most) => Some(judged <= most),
            Goal::None => None,
        }
    }

    fn cells(&self) -> [String; 8] {
        let figure =
            |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |value| self.unit.write(value));
        let judged = self.judged.map_or_else(|| "-".to_owned(), |value| self.judged_unit.write(value));
        let goal = match self.goal {
            Goal::AtLeast(least) => format!(">= {}", self.judged_unit.write(least)),
            Goal::AtMost(most) => format!("<= {}", self.judged_unit.write(most)),
            Goal::None => String::new(),
        };
        let reached = match self.reached() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let [distlock, raw, rslock] = self.figures.map(figure);
        [self.row.to_owned(), self.what.clone(), distlock, raw, rslock, judged, goal, reached.to_owned()]
    }
}

impl Unit {
    fn write(self, value: f64) -> String {
        match self {
            _ if value == f64::MAX => "endless".to_owned(),
            Self::PerSecond if value >= 1e6 => format!("{:.2} M/s", value / 1e6),
            Self::PerSecond => format!("{value:.0} /s"),
            Self::Times if value >= 20.0 => format!("{value:.0} x"),
            Self::Times => format!("{value:.2} x"),
            Self::Microseconds => format!("{value:.1} us"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Bytes => format!("{value:.0} B"),
            Self::Percent => format!("{value:.2} %"),
            Self::Count if value == value.trunc() => format!("{value:.0}"),
            Self::Count => format!("{value:.4}"),
        }
    }
}

/// Prints the table as Markdown that is also readable as it stands.
pub(crate) fn print(lines: &[Line]) {
    let head = ["", "workload", "distlock", "raw", "rslock", "measure", "goal", "reached"].map(str::to_owned);
    let table: Vec<[String; 8]> = std::iter::once(head).chain(lines.iter().map(Line::cells)).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    println!();
    for (index, row) in table.iter().enumerate() {
        print_row(row, &widths);
        if index == 0 {
            print_row(&widths.map(|width| "-".repeat(width)), &widths);
        }
    }
    let missed = lines.iter().filter(|line| line.reached() == Some(false)).count();
    println!(
        "\n{} goals reached, {missed} missed",
        lines.iter().filter(|line| line.reached() == Some(true)).count()
    );
}

fn print_row(cells: &[String; 8], widths: &[usize; 8]) {
    let mut text = String::from("|");
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padded = if column < 2 { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") };
        text.push_str(&padded);
    }
    println!("{text}");
}

/// Everything, for programs.
pub(crate) fn json(lines: &[Line], records: &[Value]) -> Value {
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "row": line.row, "what": line.what, "distlock": line.figures[0], "raw": line.figures[1],
                "rslock": line.figures[2], "measure": line.judged, "reached": line.reached(),
                "goal": match line.goal {
                    Goal::AtLeast(least) => json!({ "at_least": least }),
                    Goal::AtMost(most) => json!({ "at_most": most }),
                    Goal::None => Value::Null,
                },
            })
        })
        .collect();
    json!({ "table": lines, "runs": records })
}
