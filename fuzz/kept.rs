//! The inputs that fuzz runs have found, one in each line of `kept/TARGET.hex`, for the tests that run the same bodies.

/// Calls `body` with each input of `lines`; returns how many there were.
pub(crate) fn each_input(lines: &str, body: impl Fn(&[u8])) -> usize {
    lines.lines().map(|line| body(&bytes_of(line))).count()
}

/// Calls `body` with `count` changed inputs of `lines`, the same ones at each call: single bytes are replaced, and ends
/// are cut off.
#[allow(dead_code, reason = "some tests have a generator of their own")]
pub(crate) fn each_changed_input(lines: &str, count: usize, body: impl Fn(&[u8])) {
    let inputs: Vec<Vec<u8>> = lines.lines().map(bytes_of).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = move |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % end
    };
    for _ in 0..count {
        let mut input = inputs[below(inputs.len())].clone();
        for _ in 0..=below(4) {
            let at = below(input.len());
            input[at] = u8::try_from(below(256)).expect("a byte");
        }
        input.truncate(1 + below(2 * input.len()));
        body(&input);
    }
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).expect("a hexadecimal digit");
    let pairs = line.as_bytes().chunks_exact(2);
    let bytes = pairs.map(|pair| u8::try_from(digit(&pair[0]) * 16 + digit(&pair[1])));
    bytes.map(|byte| byte.expect("two digits")).collect()
}
