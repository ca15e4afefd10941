//! Messages that become rows: which, with what in them, and what is left of them after a crash.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use mqttcore_broker::{Data, Durability};
use mqttcore_codec::{Properties, PropertiesBuf, Property, QoS, ReasonCode, Text};

use mqttcore_streams::Stream;

use crate::client::{Http, Response};
use crate::common::{Client, HOUR_S, Home, Received, eventually, v5};
use crate::served::{Served, Setup, stream};

/// Acknowledged is safe, and what is safe can be seen.
fn with_streams(home: &Home, streams: Vec<Stream>) -> Setup {
    let mut setup = Setup::new(home, streams);
    setup.config.data = Some(Data {
        durability: Durability::Fsync,
        ..home.data(0)
    });
    setup
}

fn plant(home: &Home) -> Setup {
    with_streams(home, vec![stream("plant", "plant/#")])
}

fn ask(home: &Home, run: u32, method: &str, target: &str) -> Response {
    let socket = home.folder(run).join("streams/endpoint.sock");
    Http::unix(&socket).request(method, target, "")
}

/// The rows `from..to` as soon as they are seen, which is a little after they are acknowledged.
fn rows_of(home: &Home, run: u32, stream: &str, from: u64, to: u64) -> Vec<RecordBatch> {
    let target = format!("/v1/streams/{stream}/rows?partition=0&from={from}&to={to}");
    let mut response = Response::default();
    eventually("rows are seen", || {
        response = ask(home, run, "GET", &target);
        response.status != 416
    });
    assert_eq!(
        response.status,
        200,
        "{:?}",
        response.body.utf8_chunks().next()
    );
    let reader = StreamReader::try_new(&response.body[..], None).expect("an Arrow stream");
    let batches: Vec<_> = reader.map(|batch| batch.expect("a batch")).collect();
    let offsets = batches.iter().flat_map(|batch| {
        let offsets = batch["offset"].as_primitive::<Int64Type>();
        offsets.values().to_vec()
    });
    assert!(offsets.eq(from.cast_signed()..to.cast_signed()));
    batches
}

/// Waits until a stream of one partition ends there, and not behind it.
fn ends_at(home: &Home, run: u32, stream: &str, end: u64) {
    let mut last = String::new();
    eventually("rows are seen", || {
        let response = ask(home, run, "GET", &format!("/v1/streams/{stream}"));
        response.text().clone_into(&mut last);
        last.contains(&format!(r#""end":{end}"#))
    });
}

fn texts(batches: &[RecordBatch], column: &str) -> Vec<String> {
    let texts = batches.iter().flat_map(|batch| {
        let column = batch[column].as_string::<i32>();
        (0..column.len())
            .map(|row| column.value(row).to_owned())
            .collect::<Vec<_>>()
    });
    texts.collect()
}

fn payloads(batches: &[RecordBatch]) -> Vec<String> {
    let payloads = batches.iter().flat_map(|batch| {
        let column = batch["payload"].as_binary::<i32>();
        let text = |row| String::from_utf8(column.value(row).to_vec()).expect("text");
        (0..column.len()).map(text).collect::<Vec<_>>()
    });
    payloads.collect()
}

/// Publishes at QoS 2 until PUBREC.
fn publish_exactly(client: &mut Client, topic: &str, payload: &str) -> u16 {
    let id = client.publish(topic, payload, QoS::ExactlyOnce);
    assert!(matches!(client.receive(), Received::PubRec(other, _) if other == id));
    id
}

#[test]
fn what_matches_is_a_row_with_all_that_was_published() {
    let home = Home::new();
    let broker = start(plant(&home));
    let mut device = v5("device-1").connect(&broker);
    let mut properties = PropertiesBuf::default();
    let text = |text| Text::new(text).expect("text");
    for property in [
        Property::ContentType(text("json")),
        Property::ResponseTopic(text("answers")),
        Property::CorrelationData(b"\x00\xff"),
        Property::MessageExpiryInterval(60),
        Property::UserProperty(text("unit"), text("K")),
        Property::UserProperty(text("unit"), text("C")),
    ] {
        properties.push(property).expect("pushed");
    }

    device.publish("plant/1", "first", QoS::AtMostOnce);
    assert_eq!(
        device.publish_acknowledged("elsewhere", "no row"),
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    );
    assert_eq!(
        device.publish_acknowledged("plant/2", "second"),
        ReasonCode::SUCCESS
    );
    device.publish_with(
        "plant/3",
        b"third",
        QoS::AtLeastOnce,
        true,
        properties.as_properties(),
    );
    assert!(matches!(device.receive(), Received::PubAck(..)));
    assert_eq!(
        broker.publish(
            "plant/4",
            b"fourth",
            QoS::AtLeastOnce,
            false,
            Properties::EMPTY
        ),
        Ok(1)
    );

    let rows = rows_of(&home, 0, "plant", 0, 4);
    assert_eq!(
        texts(&rows, "topic"),
        ["plant/1", "plant/2", "plant/3", "plant/4"]
    );
    assert_eq!(payloads(&rows), ["first", "second", "third", "fourth"]);
    assert_eq!(
        texts(&rows, "client_id"),
        ["device-1", "device-1", "device-1", ""]
    );
    let rows = arrow_select::concat::concat_batches(&rows[0].schema(), &rows).expect("one batch");
    assert_eq!(
        rows["qos"].as_primitive::<Int8Type>().values(),
        &[0, 1, 1, 1]
    );
    assert_eq!(
        rows["partition"].as_primitive::<Int32Type>().values(),
        &[0; 4]
    );
    let retain: Vec<_> = rows["retain"].as_boolean().iter().flatten().collect();
    assert_eq!(retain, [false, false, true, false]);
    let times = rows["timestamp"].as_primitive::<TimestampMicrosecondType>();
    assert!(times.values().is_sorted() && times.value(0) > 1_600_000_000_000_000);
    let third = rows.slice(2, 1);
    assert_eq!(third["content_type"].as_string::<i32>().value(0), "json");
    assert_eq!(
        third["response_topic"].as_string::<i32>().value(0),
        "answers"
    );
    assert_eq!(
        third["correlation_data"].as_binary::<i32>().value(0),
        b"\x00\xff"
    );
    assert_eq!(third["expiry"].as_primitive::<Int64Type>().value(0), 60);
    let pairs = third["user_properties"].as_list::<i32>().value(0);
    let (keys, values) = (pairs.as_struct().column(0), pairs.as_struct().column(1));
    assert_eq!(
        keys.as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
        ["unit", "unit"]
    );
    assert_eq!(
        values
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        ["K", "C"]
    );
}

/// One message is one row of each stream that it matches, and reaches clients as ever.
#[test]
fn streams_and_clients_get_the_same_message() {
    let home = Home::new();
    let both = vec![stream("all", "#"), stream("plant", "plant/+")];
    let broker = start(with_streams(&home, both));
    let mut reader = v5("reader").keeping_session_s(HOUR_S).connect(&broker);
    reader.subscribe("plant/#", QoS::ExactlyOnce);
    let mut device = v5("device").connect(&broker);

    for (number, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]
        .into_iter()
        .enumerate()
    {
        device.publish("plant/1", number.to_string(), qos);
        assert_eq!(reader.take_message().number(), number);
    }

    ends_at(&home, 0, "all", 3);
    assert_eq!(payloads(&rows_of(&home, 0, "plant", 0, 3)), ["0", "1", "2"]);
    assert_eq!(payloads(&rows_of(&home, 0, "all", 0, 3)), ["0", "1", "2"]);
    let clients = broker.clients();
    let mut names: Vec<_> = clients.iter().map(|client| &*client.client_id).collect();
    names.sort_unstable();
    assert_eq!(names, ["device", "reader"]);
}

/// [MQTT-4.7.2-1] A wildcard in front does not match what the broker says about itself.
#[test]
fn topics_that_begin_with_a_dollar_are_rows_where_they_are_named() {
    let home = Home::new();
    let broker = start(with_streams(
        &home,
        vec![stream("all", "#"), stream("own", "$SYS/broker/version")],
    ));
    let publish = |topic| broker.publish(topic, b"x", QoS::AtLeastOnce, false, Properties::EMPTY);

    assert_eq!(publish("$SYS/broker/version"), Ok(1));
    assert_eq!(publish("$SYS/broker/uptime"), Ok(0));
    assert_eq!(publish("a"), Ok(1));

    ends_at(&home, 0, "own", 1);
    assert_eq!(texts(&rows_of(&home, 0, "all", 0, 1), "topic"), ["a"]);
}

#[test]
fn a_will_becomes_a_row_of_its_client() {
    let home = Home::new();
    let broker = start(plant(&home));

    v5("device")
        .will("plant/gone", "bye")
        .connect(&broker)
        .vanish();

    ends_at(&home, 0, "plant", 1);
    let rows = rows_of(&home, 0, "plant", 0, 1);
    assert_eq!(
        (texts(&rows, "client_id"), payloads(&rows)),
        (vec!["device".into()], vec!["bye".into()])
    );
}

/// Whatever the durability: the level decides when the publisher hears, not whether there is a row.
#[test]
fn rows_are_kept_with_every_durability() {
    for durability in [Durability::Memory, Durability::Os, Durability::Fsync] {
        let home = Home::new();
        let mut setup = plant(&home);
        setup.config.data = Some(Data {
            durability,
            ..home.data(0)
        });
        let broker = start(setup);
        let mut device = v5("device").connect(&broker);

        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            device.publish("plant/1", "x", qos);
        }

        ends_at(&home, 0, "plant", 3);
        rows_of(&home, 0, "plant", 0, 3);
    }
}

#[test]
fn rows_and_offsets_are_the_same_after_a_crash() {
    let home = Home::new();
    let first = start(plant(&home));
    let mut device = v5("device").connect(&first);
    for number in 0..10 {
        device.publish_acknowledged("plant/1", number.to_string());
    }
    ends_at(&home, 0, "plant", 10);
    let before = rows_of(&home, 0, "plant", 0, 10);
    let about = ask(&home, 0, "GET", "/v1/streams").body;

    let second = plant(&home).start_after_crash(&home, first);

    assert_eq!(rows_of(&home, 1, "plant", 0, 10), before);
    assert_eq!(ask(&home, 1, "GET", "/v1/streams").body, about);
    let mut device = v5("device").connect(&second);
    device.publish_acknowledged("plant/1", "10");
    ends_at(&home, 1, "plant", 11);
    let rows = rows_of(&home, 1, "plant", 0, 11);
    assert_eq!(payloads(&rows)[9..], ["9", "10"]);
}

/// QoS 2 is exact to the end, through the death of the broker.
#[test]
fn a_repeat_of_a_qos_2_publish_is_no_second_row() {
    let home = Home::new();
    let hello = v5("device").keeping_session_s(HOUR_S);
    let first = start(plant(&home));
    let mut device = hello.connect(&first);
    let id = publish_exactly(&mut device, "plant/1", "once");
    let repeat = b"\x3c\x0e\x00\x07plant/1\x00\x01\x00once".map(|byte| byte);
    assert_eq!(id, 1);
    device.send_bytes(&with_length(&repeat));
    assert!(matches!(device.receive(), Received::PubRec(1, _)));

    let second = plant(&home).start_after_crash(&home, first);
    let mut device = hello.connect_or_resume(&second).0;
    device.send_bytes(&with_length(&repeat));
    assert!(matches!(device.receive(), Received::PubRec(1, _)));
    device.publish_acknowledged("plant/1", "next");

    ends_at(&home, 1, "plant", 2);
    assert_eq!(
        payloads(&rows_of(&home, 1, "plant", 0, 2)),
        ["once", "next"]
    );
}

/// Sets the second byte to how many follow.
fn with_length(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[1] = u8::try_from(frame.len() - 2).expect("a small packet");
    frame
}

/// A publisher that says so was there before keeps what it said about itself.
#[test]
fn a_row_says_whether_it_came_with_dup() {
    let home = Home::new();
    let broker = start(plant(&home));
    let mut device = v5("device").connect(&broker);

    device.send_bytes(&with_length(b"\x3a\x00\x00\x07plant/1\x00\x01\x00x"));
    assert!(matches!(device.receive(), Received::PubAck(1, _)));

    let rows = rows_of(&home, 0, "plant", 0, 1);
    assert!(rows[0]["dup"].as_boolean().value(0));
}

#[test]
fn sealed_rows_are_in_files_and_the_tail_goes_on() {
    let home = Home::new();
    let broker = start(plant(&home));
    let mut device = v5("device").connect(&broker);
    for number in 0..3 {
        device.publish_acknowledged("plant/1", number.to_string());
    }
    ends_at(&home, 0, "plant", 3);

    let sealed = ask(&home, 0, "POST", "/v1/streams/plant/seal");
    assert!(
        sealed
            .text()
            .contains(r#""partitions":[{"earliest":0,"end":3,"sealed_end":3}]"#),
        "{}",
        sealed.text()
    );
    device.publish_acknowledged("plant/1", "3");
    ends_at(&home, 0, "plant", 4);

    let refused = ask(
        &home,
        0,
        "GET",
        "/v1/streams/plant/rows?partition=0&from=2&to=4",
    );
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains(r#""code":"sealed""#));
    assert_eq!(payloads(&rows_of(&home, 0, "plant", 3, 4)), ["3"]);
    let files = std::fs::read_dir(home.folder(0).join("streams/plant/data")).expect("a folder");
    assert_eq!(files.count(), 1);
}

#[test]
fn holds_are_placed_moved_and_ended() {
    let home = Home::new();
    let broker = start(plant(&home));
    v5("device")
        .connect(&broker)
        .publish_acknowledged("plant/1", "x");
    ends_at(&home, 0, "plant", 1);
    let socket = home.folder(0).join("streams/endpoint.sock");
    let mut http = Http::unix(&socket);
    let holds = "/v1/streams/plant/holds";

    for (body, status) in [
        (r#"{"consumer":"my query","offsets":[0]}"#, 200),
        (r#"{"consumer":"my query","offsets":[1]}"#, 200),
        (r#"{"consumer":"my query","offsets":[2]}"#, 400),
        (r#"{"consumer":"my query","offsets":[0,0]}"#, 400),
        (r#"{"consumer":"","offsets":[0]}"#, 400),
        (r#"{"consumer":"my query"}"#, 400),
        (r#"{"consumer":"my query","offsets":[0],"more":1}"#, 400),
        ("[", 400),
    ] {
        let response = http.request("POST", holds, body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
    }

    assert_eq!(
        http.request("DELETE", &format!("{holds}/my%20query"), "")
            .status,
        200
    );
    assert_eq!(
        http.request("DELETE", &format!("{holds}/my%20query"), "")
            .status,
        404
    );
    let offsets = http.get("/v1/streams/plant/offsets?timestamp_us=0");
    assert_eq!(
        (offsets.status, offsets.text()),
        (200, r#"{"offsets":[0]}"#)
    );
    let late = http.get("/v1/streams/plant/offsets?timestamp_us=9000000000000000");
    assert_eq!(late.text(), r#"{"offsets":[1]}"#);
}

fn start(setup: Setup) -> Served {
    setup.start()
}
