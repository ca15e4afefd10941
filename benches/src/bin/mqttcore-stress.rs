//! `make stress`: churns one directory and counts what is lost, wrong or leaked: see `mqttcore_benches::stress`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use mqttcore_benches::stress::heap::Counting;
use mqttcore_benches::stress::{Fault, Plan, Sabotage, run};

#[global_allocator]
static HEAP: Counting = Counting;

const USAGE: &str =
    "usage: mqttcore-stress [--cycles N] [--threads N] [--sabotage lose:N|misdeliver:N|leak:N]";

/// Between two lines of progress.
const EVERY: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let plan = match parse(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(mistake) => {
            let _ = writeln!(io::stderr(), "mqttcore-stress: {mistake}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut told = 0.0;
    let (mut last, mut lost_races) = (0.0, 0);
    let verdict = run(&plan, &mut |cycles, seconds, races| {
        (last, lost_races) = (seconds, races);
        if seconds - told >= EVERY.as_secs_f64() {
            told = seconds;
            let rate = rate(cycles, seconds);
            let _ = writeln!(
                io::stdout(),
                "{seconds:6.0} s  {cycles:>12} of {} cycles  {rate:>8} a second",
                plan.cycles
            );
        }
    });
    let cycles = verdict.cycles;
    let _ = writeln!(
        io::stdout(),
        "{cycles} cycles of {} threads in {last:.1} s ({} a second), {} matches checked, {lost_races} races lost\n{verdict}",
        plan.threads,
        rate(cycles, last),
        verdict.matches,
    );
    if verdict.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a figure for people"
)]
fn rate(cycles: u64, seconds: f64) -> u64 {
    (cycles as f64 / seconds.max(0.001)) as u64
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan {
        cycles: 1_000_000,
        threads: 4,
        sabotage: None,
        every: EVERY,
    };
    while let Some(option) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--cycles" => plan.cycles = number(&value)?,
            "--threads" => plan.threads = number(&value)?,
            "--sabotage" => plan.sabotage = Some(sabotage(&value)?),
            _ => return Err(format!("no option is {option}")),
        }
    }
    Ok(plan)
}

fn number(text: &str) -> Result<u64, String> {
    let number = text
        .replace('_', "")
        .parse()
        .ok()
        .filter(|number| *number > 0);
    number.ok_or_else(|| format!("{text} is no number above 0"))
}

fn sabotage(text: &str) -> Result<Sabotage, String> {
    let (fault, one_in) = text
        .split_once(':')
        .ok_or_else(|| format!("{text} is no fault:number"))?;
    let fault = match fault {
        "lose" => Fault::Lose,
        "misdeliver" => Fault::Misdeliver,
        "leak" => Fault::Leak,
        _ => return Err(format!("no fault is {fault}")),
    };
    Ok(Sabotage {
        fault,
        one_in: number(one_in)?,
    })
}
