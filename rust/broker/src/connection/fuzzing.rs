//! The bodies of the fuzz targets of connections (`fuzz/README.md`), and tests that run them with kept inputs.

pub use super::proxy_header::fuzzing::header as proxy_header;
pub use crate::transport::websocket::fuzzing::{
    frames as websocket_frames, upgrade as websocket_upgrade,
};

#[cfg(test)]
#[path = "../../../../fuzz/kept.rs"]
mod kept;

/// (abuse I13)
#[test]
fn i13_kept_and_changed_proxy_headers_are_read_or_refused() {
    let inputs = include_str!("../../../../fuzz/kept/proxy.hex");

    assert!(kept::each_input(inputs, proxy_header) > 20);
    kept::each_changed_input(inputs, 5_000, proxy_header);
}

/// (abuse I07)
#[test]
fn i07_kept_and_changed_websocket_frames_are_read_or_refused() {
    let inputs = include_str!("../../../../fuzz/kept/websocket.hex");

    assert!(kept::each_input(inputs, websocket_frames) > 20);
    kept::each_changed_input(inputs, 5_000, websocket_frames);
}

/// (abuse I09)
#[test]
fn i09_kept_and_changed_requests_for_websockets_are_answered() {
    let inputs = include_str!("../../../../fuzz/kept/upgrade.hex");

    assert!(kept::each_input(inputs, websocket_upgrade) > 20);
    kept::each_changed_input(inputs, 1_000, websocket_upgrade);
}
