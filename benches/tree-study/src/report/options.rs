//! What the command line asks for.

use std::path::PathBuf;
use std::time::Duration;

/// How the report is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Subscriptions of each workload, rising.
    pub sizes: Vec<usize>,
    /// Turns that every contender has; odd, so that there is a middle one.
    pub rounds: usize,
    /// Processor time of one figure in one round.
    pub slice: Duration,
    /// How long threads run beside each other for one figure.
    pub span: Duration,
    /// Where `tree-report.md` and the folder of plots go.
    pub output: PathBuf,
    /// Whether standard output gets JSON in place of the table.
    pub is_json: bool,
    /// The arguments, for the report to repeat.
    pub arguments: Vec<String>,
}

/// What `--help` says.
pub const HELP: &str = "\
mqttcore-tree-report: the subscription directory beside its peers, and which goals it meets

  --sizes 10k,100k,1m   subscriptions of each workload
  --quick               a minute at most: that the report runs, not what it says
  --output DIR          where tree-report.md and tree-report/*.svg go (docs)
  --json                JSON on standard output in place of the table
  --help                this text
";

impl Options {
    /// Reads the arguments behind the program's name; `None` asks for help.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let arguments: Vec<_> = arguments.collect();
        let mut options = Self {
            sizes: vec![10_000, 100_000, 1_000_000],
            rounds: 7,
            slice: Duration::from_millis(30),
            span: Duration::from_millis(400),
            output: PathBuf::from("docs"),
            is_json: false,
            arguments: arguments.clone(),
        };
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--sizes" => options.sizes = sizes(&value()?)?,
                "--output" => options.output = value()?.into(),
                "--quick" => options.hurry(),
                "--json" => options.is_json = true,
                "--help" => return Ok(None),
                _ => return Err(format!("unknown argument {argument}; see --help")),
            }
        }
        Ok(Some(options))
    }

    fn hurry(&mut self) {
        self.sizes = vec![500, 1_000];
        self.rounds = 1;
        self.slice = super::grid::SHORTEST_SLICE;
        self.span = Duration::from_millis(50);
    }
}

fn sizes(text: &str) -> Result<Vec<usize>, String> {
    let mut sizes: Vec<_> = text.split(',').map(size).collect::<Result<_, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn size(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_lowercase();
    let (digits, unit) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1_000),
        Some(b'm') => (&lower[..lower.len() - 1], 1_000_000),
        _ => (lower.as_str(), 1),
    };
    let number = digits
        .parse::<usize>()
        .ok()
        .filter(|number| (1..=100_000_000).contains(number));
    let size = number.and_then(|number| number.checked_mul(unit));
    size.ok_or_else(|| format!("{text} is no size such as 10k or 1m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units_and_sorted() {
        assert_eq!(sizes("1m,10k,500"), Ok(vec![500, 10_000, 1_000_000]));
        assert!(sizes("10q").is_err());
        assert!(sizes("0").is_err());
    }

    #[test]
    fn an_unknown_argument_is_refused() {
        assert!(Options::parse(["--fast".to_owned()].into_iter()).is_err());
    }
}
