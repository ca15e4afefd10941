//! The report runs and is well formed; what it says is for a quiet machine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn report(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_mqttcore-tree-report");
    Command::new(program)
        .args(arguments)
        .output()
        .expect("the report starts")
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the folder of the last run goes");
    }
    folder
}

#[test]
fn a_quick_report_has_every_row_a_verdict_and_every_plot() {
    let folder = folder("tree-report");

    let output = report(&[
        "--quick",
        "--output",
        folder.to_str().expect("a plain path"),
    ]);

    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let table = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
        .collect();
    assert!(rows.len() >= 35, "{table}");
    for row in &rows {
        let columns: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(columns.len(), 5, "{row}");
        assert!(
            ["met", "not met", "not measured"].contains(&columns[4]),
            "{row}"
        );
        assert!(
            columns[4] == "not measured" || !columns[3].is_empty(),
            "{row}"
        );
    }
    let page = fs::read_to_string(folder.join("tree-report.md")).expect("the page");
    assert!(rows.iter().all(|row| page.contains(row)));
    for plot in ["match", "write", "bytes"] {
        assert!(page.contains(&format!("(tree-report/{plot}.svg)")));
        let path = folder.join("tree-report").join(plot).with_extension("svg");
        let text = fs::read_to_string(path).expect("the plot");
        assert!(
            text.starts_with("<svg") && text.trim_end().ends_with("</svg>"),
            "{plot}"
        );
        assert!(
            text.contains("RwLock trie") && text.contains("telemetry"),
            "{plot}"
        );
    }
}

#[test]
fn sizes_that_are_none_are_refused_in_one_line() {
    let output = report(&["--sizes", "10k,many"]);

    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(
        text,
        "mqttcore-tree-report: many is no size such as 10k or 1m\n"
    );
}
