//! The inputs that fuzz runs have found, one in each line of `kept/TARGET.hex`, for the tests that run the same bodies.

/// Calls `body` with each input of `lines`; returns how many there were.
pub(crate) fn each_input(lines: &str, body: impl Fn(&[u8])) -> usize {
    lines.lines().map(|line| body(&bytes_of(line))).count()
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).expect("a hexadecimal digit");
    let pairs = line.as_bytes().chunks_exact(2);
    let bytes = pairs.map(|pair| u8::try_from(digit(&pair[0]) * 16 + digit(&pair[1])));
    bytes.map(|byte| byte.expect("two digits")).collect()
}
