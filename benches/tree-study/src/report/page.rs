//! The report as Markdown and as JSON.

use std::fmt::Write;

use super::goals::{Goal, Verdict};
use super::grid::{Cell, Grid, Kind, median};
use super::options::Options;

/// What the figures are of.
#[derive(Debug)]
pub struct Origin {
    /// Processor and cores.
    pub machine: String,
    /// The commit that was checked out, with a mark when files were changed.
    pub commit: String,
    /// The command.
    pub command: String,
    /// How long it took, in seconds.
    pub seconds: u64,
}

impl Origin {
    /// Finds out where the report runs.
    #[must_use]
    pub fn find(options: &Options) -> Self {
        let arguments = options
            .arguments
            .iter()
            .map(|argument| format!(" {argument}"));
        Self {
            machine: machine(),
            commit: commit(),
            command: format!("mqttcore-tree-report{}", arguments.collect::<String>()),
            seconds: 0,
        }
    }
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |model| {
        model.trim_start_matches(['\t', ' ', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores")
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(arguments)
            .output()
            .ok()?;
        let text = output.status.success().then_some(output.stdout)?;
        String::from_utf8(text).ok()
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|text| !text.is_empty());
    format!(
        "{}{}",
        commit.trim(),
        if is_changed { ", changed" } else { "" }
    )
}

/// The goal table.
#[must_use]
pub fn table(goals: &[Goal]) -> String {
    let mut text = String::from(
        "| goal | against | target | measured | verdict |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in goals {
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            row.goal,
            row.against,
            row.target,
            row.measured,
            row.verdict.text()
        );
    }
    text
}

/// One line that counts the verdicts.
#[must_use]
pub fn summary(goals: &[Goal]) -> String {
    let count = |verdict| goals.iter().filter(|goal| goal.verdict == verdict).count();
    let [met, not_met, not_measured] =
        [Verdict::Met, Verdict::NotMet, Verdict::NotMeasured].map(count);
    format!(
        "{met} of {} goals met, {not_met} not met, {not_measured} not measured",
        goals.len()
    )
}

const HOW: &str = "\
Every contender is loaded with the same subscriptions in one process, and they take turns: all figures of a row come from the
same minutes. A ratio is the median over the rounds of ours divided by theirs in the same round; where a row names several
workloads, all of them count, and figures stand by rising size. Times are processor time of the thread. Topics are 262,144
in random order; a turn begins with an untimed third. Hot topics are 16 in turn while nobody writes; NATS asks the caches of reader and
sublist for them, ours the match cache of a worker (`match_cached`), which no other row uses. A write is a filter
that was never there, after a quarter as many that are not timed; it goes again, untimed in that row. Fan-out is changed by a subscriber that leaves and comes
back, which is what NATS's list and Moquette's copies are slow at; NATS adds new subscribers in constant time.

Bytes are those that glibc hands out, its own included, and the directory's chunks, for the index. Clients are counted apart: their seats (handle,
liveness, and room for the list of their filters, 24 bytes a filter) are in the figure `client`; the peers leave all
that to the session. The peers hold plain subscriptions only and merge no overlaps; ours holds everything, merges,
and looks up whether each receiver is alive. Ours asks for huge pages where it is large; the peers have what malloc gives them.

Two writers, two readers and a reader beside a writer run on 2 cores; throughput of two readers is twice the processor time of a match
alone over that of two. The reader is measured beside a writer of another directory of the same size as well: what that costs is the machine's,
not the directory's. A stalled reader holds a snapshot while a writer commits at full speed.
";

/// The whole page.
#[must_use]
pub fn markdown(goals: &[Goal], grid: &Grid, origin: &Origin) -> String {
    let mut text = String::from("# The subscription directory beside its peers\n\n");
    // Writing to a text cannot fail.
    let _ = write!(
        text,
        "Made by `make tree-report` ({}), which writes it anew.\n\n{}, {}, commit {}, {} s.\n\n## Goals\n\n{}.\n\n{}\n",
        origin.command.trim_end(),
        std::env::consts::OS,
        origin.machine,
        origin.commit,
        origin.seconds,
        summary(goals),
        table(goals)
    );
    let _ = write!(text, "## How\n\n{HOW}\n");
    for (title, plot, figure) in figures() {
        let _ = write!(text, "## {title}\n\n");
        if let Some(plot) = plot {
            let _ = write!(text, "![{title}](tree-report/{plot}.svg)\n\n");
        }
        text.push_str(&figure_table(grid, figure));
        text.push('\n');
    }
    text
}

type Figure = fn(&Cell) -> f64;

fn figures() -> Vec<(&'static str, Option<&'static str>, Figure)> {
    vec![
        ("Match, one at a time, ns", Some("match"), |cell| {
            median(&cell.one)
        }),
        ("Match, 16 in flight, ns", None, |cell| median(&cell.many)),
        ("Match, hot topics, ns", None, |cell| median(&cell.hot)),
        ("Write of a new filter, ns", Some("write"), |cell| {
            median(&cell.write)
        }),
        ("Removal of the same, ns", None, |cell| median(&cell.remove)),
        ("Change of a known subscriber, ns", None, |cell| {
            median(&cell.churn)
        }),
        ("Bytes a subscription", Some("bytes"), |cell| {
            cell.footprint.bytes
        }),
        ("Bytes a client, before it subscribes", None, |cell| {
            cell.footprint.client_bytes
        }),
        ("Loading, ns a subscription", None, |cell| {
            cell.footprint.load
        }),
    ]
}

/// A figure of all contenders; rows and columns without any are left out.
fn figure_table(grid: &Grid, figure: Figure) -> String {
    let groups: Vec<_> = grid.0.iter().collect();
    let has_any =
        |group: &&super::grid::Group| group.cells.iter().any(|cell| figure(cell).is_finite());
    let mut groups: Vec<_> = groups.into_iter().filter(has_any).collect();
    groups.sort_by_key(|group| {
        (
            Kind::ALL.iter().position(|kind| *kind == group.kind),
            group.size,
        )
    });
    let mut text = String::from("| |");
    for group in &groups {
        // Writing to a text cannot fail.
        let _ = write!(text, " {} {} |", group.kind.name(), size_name(group.size));
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(groups.len()));
    text.push('\n');
    let peers = groups.first().map_or(&[][..], |group| &group.cells);
    for peer in peers {
        let values = groups
            .iter()
            .map(|group| group.peer(peer.peer).map_or(f64::NAN, figure));
        let values: Vec<_> = values.collect();
        if values.iter().all(|value| !value.is_finite()) {
            continue;
        }
        let _ = write!(text, "| {} |", peer.peer);
        for value in values {
            let _ = write!(text, " {} |", number(value));
        }
        text.push('\n');
    }
    text
}

fn number(value: f64) -> String {
    if !value.is_finite() {
        "-".to_owned()
    } else if value.abs() < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// 10k, 1M.
#[must_use]
pub fn size_name(size: usize) -> String {
    match size {
        _ if size >= 1_000_000 && size.is_multiple_of(1_000_000) => {
            format!("{}M", size / 1_000_000)
        }
        _ if size >= 1_000 && size.is_multiple_of(1_000) => format!("{}k", size / 1_000),
        _ => size.to_string(),
    }
}

/// All of it for programs: an object with `machine`, `commit`, `command`, `goals` and `cells`.
#[must_use]
pub fn json(goals: &[Goal], grid: &Grid, origin: &Origin) -> String {
    let goals = goals.iter().map(|row| {
        object(&[
            ("goal", quoted(row.goal)),
            ("against", quoted(row.against)),
            ("target", quoted(&row.target)),
            ("measured", quoted(&row.measured)),
            ("verdict", quoted(row.verdict.text())),
        ])
    });
    let cells = grid
        .0
        .iter()
        .flat_map(|group| group.cells.iter().map(move |cell| (group, cell)));
    let cells = cells.map(|(group, cell)| {
        let mut fields = vec![
            ("workload", quoted(group.kind.name())),
            ("size", group.size.to_string()),
            ("receivers", value(group.receivers)),
            ("peer", quoted(cell.peer)),
            ("bytes", value(cell.footprint.bytes)),
            ("client_bytes", value(cell.footprint.client_bytes)),
            ("load_ns", value(cell.footprint.load)),
        ];
        let rounds: [(&str, &[f64]); 6] = [
            ("match_one_ns", &cell.one),
            ("match_many_ns", &cell.many),
            ("match_hot_ns", &cell.hot),
            ("write_ns", &cell.write),
            ("remove_ns", &cell.remove),
            ("churn_ns", &cell.churn),
        ];
        fields.extend(
            rounds.map(|(name, values)| (name, list(values.iter().map(|one| value(*one))))),
        );
        object(&fields)
    });
    let mut text = object(&[
        ("machine", quoted(&origin.machine)),
        ("commit", quoted(&origin.commit)),
        ("command", quoted(&origin.command)),
        ("goals", list(goals)),
        ("cells", list(cells)),
    ]);
    text.push('\n');
    text
}

fn object(fields: &[(&str, String)]) -> String {
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

fn value(figure: f64) -> String {
    if figure.is_finite() {
        format!("{figure:.1}")
    } else {
        "null".to_owned()
    }
}

fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|letter| match letter {
            '"' | '\\' => vec!['\\', letter],
            _ if letter.is_control() => vec![' '],
            _ => vec![letter],
        })
        .collect();
    format!("\"{escaped}\"")
}
