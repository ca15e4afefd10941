//! Payloads of Sparkplug B, by hand.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

/// A field of Protocol Buffers: a number, or bytes.
pub fn number(field: u8, mut value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7F).expect("7 bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("7 bits"));
    bytes
}

pub fn bytes(field: u16, value: &[u8]) -> Vec<u8> {
    let key = field << 3 | 2;
    let mut bytes = match u8::try_from(key) {
        Ok(key) if key < 0x80 => vec![key],
        _ => vec![
            u8::try_from(key & 0x7F).expect("7 bits") | 0x80,
            u8::try_from(key >> 7).expect("7 bits"),
        ],
    };
    bytes.push(u8::try_from(value.len()).expect("a short value"));
    bytes.extend_from_slice(value);
    bytes
}

/// A metric of Sparkplug B: name, alias, type, and the field with its value.
pub fn metric(name: &str, alias: u64, datatype: u64, value: &[u8]) -> Vec<u8> {
    let name = if name.is_empty() {
        vec![]
    } else {
        bytes(1, name.as_bytes())
    };
    let datatype = if datatype == 0 {
        vec![]
    } else {
        number(4, datatype)
    };
    bytes(
        2,
        &[name, number(2, alias), datatype, value.to_vec()].concat(),
    )
}

/// The BIRTH of an edge node that has one metric, a Double of value 0.
pub fn birth(name: &str, alias: u64) -> Vec<u8> {
    metric(name, alias, 10, &double(0.0))
}

/// A value of it, by alias.
pub fn data(alias: u64, value: f64) -> Vec<u8> {
    metric("", alias, 0, &double(value))
}

/// The field with the value of a Double.
pub fn double(value: f64) -> Vec<u8> {
    [&[0x69][..], &value.to_le_bytes()].concat()
}
