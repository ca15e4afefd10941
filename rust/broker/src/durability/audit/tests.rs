//! Tests of the audit log.

use std::os::unix::fs::PermissionsExt;

use super::*;

struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("audit-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn audit(&self) -> PathBuf {
        self.0.join(FOLDER)
    }

    fn lines(&self) -> Vec<String> {
        let names = names(&self.audit()).unwrap().into_iter();
        let texts = names.map(|name| fs::read_to_string(self.audit().join(name)).unwrap());
        let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(target: &str) -> AuditEntry {
    AuditEntry {
        who: "key \"a\"".into(),
        how: "http".into(),
        action: "ban".into(),
        target: target.into(),
        result: "204".into(),
        ..AuditEntry::default()
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn assert_chain(lines: &[String], first: &str) {
    let mut previous = first.to_owned();
    for line in lines {
        assert!(
            line.ends_with(&format!("\"prev\":\"{previous}\"}}")),
            "{line}"
        );
        previous = hash_of(line.as_bytes());
    }
}

#[test]
fn a_line_is_json_on_one_line_without_what_would_end_it() {
    let found = AuditEntry {
        address: Some([127, 0, 0, 1].into()),
        details: vec![
            ("kind".into(), "ip".into()),
            ("why".into(), "\"\n\u{85}".into()),
        ],
        request_id: Some("7".into()),
        ..entry(&"ä".repeat(200))
    };

    let text = line(&found, at(951_868_799), 3, NO_LINE);

    let wanted = format!(
        r#"{{"ts":"2000-02-29T23:59:59.000Z","who":"key \"a\"","how":"http","ip":"127.0.0.1","action":"ban","target":"{}…","details":{{"kind":"ip","why":"\"\u000a\u0085"}},"result":"204","request_id":"7","lost":3,"prev":"{NO_LINE}"}}"#,
        "ä".repeat(128)
    );
    assert_eq!(text, wanted);
}

#[test]
fn lines_are_a_chain_over_restarts_and_days_and_for_the_owner_alone() {
    let home = Home::new("chain");
    for (restart, second) in [(0, 10), (0, 20), (1, 86_400), (2, 86_401), (3, 30)] {
        let log = AuditLog::new(&home.0);
        log.append(&entry(&format!("{restart} {second}")), at(second))
            .unwrap();
    }

    let lines = home.lines();
    assert_eq!(lines.len(), 5);
    assert_chain(&lines, NO_LINE);
    let names = names(&home.audit()).unwrap();
    assert_eq!(
        names,
        ["1970-01-01T00-00-10Z.jsonl", "1970-01-02T00-00-00Z.jsonl"],
        "a clock that is set back begins no file"
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.audit()), 0o700);
    assert_eq!(mode(&home.audit().join(&names[0])), 0o600);
}

#[test]
fn a_file_that_does_not_end_in_a_complete_line_is_left_as_it_is() {
    let home = Home::new("torn");
    AuditLog::new(&home.0).append(&entry("a"), at(1)).unwrap();
    let file = home.audit().join(name_of(at(1)));
    let whole = fs::read_to_string(&file).unwrap();
    for (found, name) in [
        (format!("{whole}{{\"ts\":\"19"), "a part of a line"),
        (whole.replace('\n', "\u{b}"), "a last line without its end"),
        ("\0".repeat(300_000), "zeros"),
    ] {
        fs::write(&file, &found).unwrap();

        AuditLog::new(&home.0).append(&entry("b"), at(1)).unwrap();

        assert_eq!(fs::read_to_string(&file).unwrap(), found, "{name}");
        let names = names(&home.audit()).unwrap();
        assert_eq!(
            names,
            [
                "1970-01-01T00-00-01Z.jsonl",
                "1970-01-01T00-00-01Z_000001.jsonl"
            ],
            "{name}"
        );
        let next = fs::read_to_string(home.audit().join(&names[1])).unwrap();
        let previous = whole
            .strip_suffix('\n')
            .filter(|_| found.starts_with(&whole));
        let previous = previous.map_or(NO_LINE.into(), |line| hash_of(line.as_bytes()));
        assert_chain(&[next.trim_end().to_owned()], &previous);
        fs::remove_file(home.audit().join(&names[1])).unwrap();
    }
}

#[test]
fn large_details_and_escapes_do_not_make_a_line_large() {
    let value = "\u{1}".repeat(256);
    let details = (0..16).map(|at| (format!("name {at}"), value.clone()));
    let large = AuditEntry {
        details: details.collect(),
        ..entry(&value)
    };

    let text = line(&large, at(1), 0, NO_LINE);

    assert!(text.len() < 2_048, "{}", text.len());
    assert!(text.contains("\"name 0\":\"\\u0001") && !text.contains("name 15"));
}

#[test]
fn a_wrong_clock_removes_one_file_at_most_and_does_not_end_the_rotation() {
    let home = Home::new("clock");
    let log = AuditLog::new(&home.0);
    for day in [0, 1, 2, 3, 4_000] {
        log.append(&entry("a"), at(day * 86_400)).unwrap();
    }
    let other = home.audit().join("notes.jsonl");
    fs::write(&other, "of an operator").unwrap();
    let future = name_of(at(4_000 * 86_400));

    assert_eq!(names(&home.audit()).unwrap().len(), 4);
    log.append(&entry("b"), at(4 * 86_400)).unwrap();
    assert_eq!(names(&home.audit()).unwrap().len(), 4);
    let full = OpenOptions::new()
        .append(true)
        .open(home.audit().join(&future));
    full.unwrap().set_len(FILE_BYTES).unwrap();
    AuditLog::new(&home.0)
        .append(&entry("c"), at(4 * 86_400))
        .unwrap();

    let names = names(&home.audit()).unwrap();
    assert_eq!(names[4], future.replace("Z.", "Z_000001."));
    assert_eq!(
        name_after(&names[4], at(1)),
        future.replace("Z.", "Z_000002.")
    );
    assert_eq!(fs::read_to_string(&other).unwrap(), "of an operator");
}

#[test]
fn lost_entries_are_counted_in_the_next_line() {
    let home = Home::new("lost");
    let log = AuditLog::new(&home.0);
    fs::write(home.audit(), "no folder").unwrap();
    log.append(&entry("a"), at(1)).unwrap_err();
    log.append(&entry("b"), at(2)).unwrap_err();
    fs::remove_file(home.audit()).unwrap();

    log.append(&entry("c"), at(3)).unwrap();
    log.append(&entry("d"), at(4)).unwrap();

    let lines = home.lines();
    assert!(lines[0].contains("\"lost\":2,"), "{}", lines[0]);
    assert!(!lines[1].contains("lost"), "{}", lines[1]);
    assert_eq!(log.counts(), (2, 2));
}

#[test]
fn files_are_kept_for_90_days() {
    let home = Home::new("old");
    let log = AuditLog::new(&home.0);
    for day in [0, 1, 91] {
        log.append(&entry("a"), at(day * 86_400)).unwrap();
    }

    let names = names(&home.audit()).unwrap();
    // The entries of the first file end when the second one begins, 90 days ago.
    assert_eq!(
        names,
        ["1970-01-02T00-00-00Z.jsonl", "1970-04-02T00-00-00Z.jsonl"]
    );
}

#[test]
fn a_full_file_is_followed_by_another_one_on_the_same_day() {
    let home = Home::new("full");
    let mut file = AuditFile::latest(
        &{
            DirBuilder::new().create(home.audit()).unwrap();
            home.audit()
        },
        at(1),
    )
    .unwrap();

    assert!(!file.is_followed_by(&name_of(at(2))));
    file.bytes = FILE_BYTES;

    assert!(file.is_followed_by(&name_of(at(2))));
    assert!(file.is_followed_by(&name_of(at(0))));
}

/// The lines that a reader gets in pages of one, each page by a new reader.
fn read_backwards(home: &Home) -> Vec<String> {
    let (mut lines, mut before) = (Vec::new(), None);
    loop {
        let mut page = AuditLines::new(&home.audit(), "", before.take()).unwrap();
        let Some(line) = page.next() else {
            return lines;
        };
        let (position, line) = line.unwrap();
        before = Some(position.to_string().parse().unwrap());
        lines.push(String::from_utf8(line).unwrap());
    }
}

#[test]
fn lines_are_read_backwards_over_blocks_and_files() {
    let home = Home::new("backwards");
    let log = AuditLog::new(&home.0);
    for day in 0..3 {
        for number in 0..400 {
            let target = "t".repeat(number % 250);
            log.append(&entry(&target), at(day * 86_400 + number as u64))
                .unwrap();
        }
    }
    let mut written = home.lines();
    written.reverse();

    assert_eq!(written.len(), 1_200);
    assert_eq!(read_backwards(&home), written);
    let whole = AuditLines::new(&home.audit(), "", None).unwrap();
    let whole: Vec<_> = whole.map(|line| line.unwrap().1).collect();
    assert!(whole.iter().eq(written.iter().map(String::as_bytes)));
    let since = AuditLines::new(&home.audit(), "1970-01-03T00", None).unwrap();
    assert_eq!(since.count(), 400, "files of earlier days are not read");
}

#[test]
fn parts_of_lines_are_left_out_and_a_line_without_end_comes_in_pieces() {
    let home = Home::new("parts");
    let log = AuditLog::new(&home.0);
    log.append(&entry("a"), at(0)).unwrap();
    let name = names(&home.audit()).unwrap().remove(0);
    let file = home.audit().join(&name);
    let whole = fs::read(&file).unwrap();
    let with = |bytes: &[u8]| fs::write(&file, [&whole[..], bytes].concat()).unwrap();
    let line = std::str::from_utf8(&whole).unwrap().trim_end();

    with(b"{\"ts\":");
    assert_eq!(read_backwards(&home), [line]);

    with(&vec![b'x'; 3 << 20]);
    assert_eq!(read_backwards(&home), [line]);

    let endless = [vec![b'x'; 3 << 20], b"\n".to_vec()].concat();
    with(&endless);
    let lines = read_backwards(&home);
    assert_eq!(lines.last().map(String::as_str), Some(line));
    assert!(lines.len() > 1);
    assert!(lines.iter().all(|line| line.len() < 1 << 20));

    with(b"\n\n");
    assert_eq!(read_backwards(&home), ["", "", line]);
}

#[test]
fn a_position_names_no_other_file() {
    for text in ["", "../x 0", "1970-01-01T00-00-00Z.jsonl", "a.jsonl 7"] {
        let position: Result<AuditPosition, _> = text.parse();
        assert_eq!(position, Err(InvalidAuditPosition), "{text}");
    }
}
