//! `make tree-report`: measures the subscription directory beside its peers and says which goals it meets.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use mqttcore_tree_study::report::goals::goals;
use mqttcore_tree_study::report::grid::Grid;
use mqttcore_tree_study::report::memory::Memory;
use mqttcore_tree_study::report::options::{HELP, Options};
use mqttcore_tree_study::report::page::{Origin, json, markdown, summary, table};
use mqttcore_tree_study::report::plots::draw;
use mqttcore_tree_study::report::progress::Progress;
use mqttcore_tree_study::report::threads::Threads;

fn main() -> ExitCode {
    let done = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => run(&options).map_err(|error| error.to_string()),
        Ok(None) => io::stdout()
            .write_all(HELP.as_bytes())
            .map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        eprintln!("mqttcore-tree-report: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let (start, progress) = (Instant::now(), Progress::begin());
    let mut origin = Origin::find(options);
    let memory = Memory::measure(options, &progress);
    let threads = Threads::measure(options, &progress);
    let grid = Grid::measure(options, &progress);
    progress.end();
    origin.seconds = start.elapsed().as_secs();
    let goals = goals(&grid, &threads, &memory);

    let folder = options.output.join("tree-report");
    fs::create_dir_all(&folder)?;
    fs::write(
        options.output.join("tree-report.md"),
        markdown(&goals, &grid, &origin),
    )?;
    for (name, text) in draw(&grid)? {
        fs::write(folder.join(format!("{name}.svg")), text)?;
    }
    let text = if options.is_json {
        json(&goals, &grid, &origin)
    } else {
        format!("{}\n{}\n", table(&goals), summary(&goals))
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}
