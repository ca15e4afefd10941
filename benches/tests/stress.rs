//! `mqttcore-stress` in its bounded form: a sound directory passes, and each kind of fault is counted.

use std::process::{Command, Output};

fn stress(arguments: &[&str]) -> (String, Output) {
    let output = Command::new(env!("CARGO_BIN_EXE_mqttcore-stress"))
        .args(arguments)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default().to_owned();
    (last, output)
}

/// C3, B5: nothing acknowledged is lost, nobody gets what is not theirs, and everything is given back.
#[test]
fn churn_on_a_sound_directory_counts_nothing() {
    let (last, output) = stress(&["--cycles", "40_000", "--threads", "4"]);

    assert_eq!(last, "0 lost, 0 wrong, 0 leaked", "{output:?}");
    assert!(output.status.success());
}

/// A stand-in for a directory that is broken in one way must be found out in that way.
#[test]
fn each_kind_of_fault_is_counted() {
    for (fault, zero) in [
        ("lose:1000", "0 lost"),
        ("misdeliver:1000", "0 wrong"),
        ("leak:10", "0 leaked"),
    ] {
        let (last, output) = stress(&["--cycles", "20000", "--threads", "2", "--sabotage", fault]);

        assert!(last.contains(" leaked"), "{output:?}");
        assert!(
            !last.split(", ").any(|part| part == zero),
            "{fault}: {last}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_mistake_in_the_arguments_is_no_run() {
    for arguments in [&["--cycles"][..], &["--cycles", "0"], &["--speed", "9"]] {
        assert_eq!(stress(arguments).1.status.code(), Some(2));
    }
}
