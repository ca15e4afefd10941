//! Decodes Sparkplug B: metrics by name, or by the alias that a BIRTH assigned.
//!
//! A payload is an object whose keys are the names of its metrics, and `_timestamp`, `_seq`, `_uuid` and `_metrics`, an
//! array of objects with `name`, `alias`, `timestamp`, `datatype` and `value`.
//!
//! Source: Sparkplug 3.0, chapter 6 (payloads) and section 6.4.7 (aliases).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::value::{DocumentNode, Malformed, SchemaKeys, Value};
use super::wire::{MessageFields, Wire, low_half, utf8};

/// The metrics of each edge node that have an alias. A clone shares unchanged tables with its original.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MetricAliases(BTreeMap<String, Arc<Metrics>>);

/// The metrics of one edge node, by their aliases.
type Metrics = BTreeMap<u64, Metric>;

/// Name and type of a metric, from a BIRTH.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Metric {
    name: String,
    datatype: u64,
}

impl MetricAliases {
    /// Learns the aliases of a BIRTH. An NBIRTH first removes all aliases of its edge node.
    pub(crate) fn learn(&mut self, topic: &str, payload: &[u8]) {
        let Some(address) = Address::of(topic).filter(Address::is_birth) else {
            return;
        };
        let known = self.0.entry(address.node()).or_default();
        if address.is_first() {
            *known = Arc::default();
        }
        let known = Arc::make_mut(known);
        for metric in metrics(payload).flatten() {
            if let (Some(alias), Some(name)) = (metric.alias, metric.name) {
                let (name, datatype) = (name.to_owned(), metric.datatype.unwrap_or(0));
                known.insert(alias, Metric { name, datatype });
            }
        }
    }

    /// Opens a document that was published to `topic`; returns [`Value::Missing`] for an empty payload.
    pub(crate) fn document<'a>(&'a self, topic: &str, payload: &'a [u8]) -> SparkplugValue<'a> {
        if payload.is_empty() {
            return Value::Missing;
        }
        let node = Address::of(topic).and_then(|address| self.0.get(&address.node()));
        let part = Part::Payload;
        Value::Object(SparkplugNode {
            part,
            bytes: payload,
            aliases: node.map(AsRef::as_ref),
        })
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the aliases of the edge nodes for which the other table has metrics.
    pub(crate) fn update(&mut self, other: &Self) {
        for (node, metrics) in other.0.iter().filter(|(_, metrics)| !metrics.is_empty()) {
            self.0.insert(node.clone(), Arc::clone(metrics));
        }
    }

    /// Adds the aliases of edge nodes that this table lacks.
    pub fn fill(&mut self, other: Self) {
        for (node, metrics) in other.0 {
            self.0.entry(node).or_insert(metrics);
        }
    }

    /// Writes the table as JSON: an object for each edge node (`group/node`), which maps an alias to name and type.
    pub fn to_json(&self) -> String {
        let node = |(node, metrics): (&String, &Arc<Metrics>)| {
            let metric = |(alias, metric): (&u64, &Metric)| {
                (
                    alias.to_string(),
                    serde_json::json!([metric.name, metric.datatype]),
                )
            };
            let metrics = metrics.iter().map(metric);
            (node.clone(), serde_json::Value::Object(metrics.collect()))
        };
        serde_json::Value::Object(self.0.iter().map(node).collect()).to_string()
    }

    /// Parses the JSON of [`to_json`](Self::to_json).
    pub fn parse(text: &str) -> Option<Self> {
        let nodes: BTreeMap<String, BTreeMap<u64, (String, u64)>> =
            serde_json::from_str(text).ok()?;
        let node = |(node, metrics): (String, BTreeMap<u64, (String, u64)>)| {
            let metric = |(alias, (name, datatype))| (alias, Metric { name, datatype });
            (node, Arc::new(metrics.into_iter().map(metric).collect()))
        };
        Some(Self(nodes.into_iter().map(node).collect()))
    }
}

/// The earlier aliases that rows need: for each edge node, the aliases known before its first row. An edge node whose
/// first row is an NBIRTH needs none.
#[derive(Debug, Default)]
pub(crate) struct Needed(BTreeMap<String, Option<Arc<Metrics>>>);

impl Needed {
    /// Records the next row; `known` are the aliases of the rows before it.
    pub(crate) fn add(&mut self, topic: &str, known: &MetricAliases) {
        let Some(address) = Address::of(topic) else {
            return;
        };
        if let Entry::Vacant(place) = self.0.entry(address.node()) {
            let metrics = known.0.get(place.key()).cloned().unwrap_or_default();
            place.insert((!address.is_first()).then_some(metrics));
        }
    }

    /// Returns the table; it has an empty entry for an edge node without known aliases.
    pub(crate) fn into_aliases(self) -> MetricAliases {
        let nodes = self.0.into_iter();
        MetricAliases(
            nodes
                .filter_map(|(node, known)| Some((node, known?)))
                .collect(),
        )
    }
}

/// Whether a topic is one of Sparkplug B.
pub(crate) fn is_sparkplug(topic: &str) -> bool {
    topic.starts_with(NAMESPACE)
}

/// Topic prefix of Sparkplug B.
pub(crate) const NAMESPACE: &str = "spBv1.0/";

/// The parts of a topic: `spBv1.0/group/kind/node` or `spBv1.0/group/kind/node/device`.
#[derive(Clone, Copy)]
struct Address<'a> {
    group: &'a str,
    kind: &'a str,
    node: &'a str,
}

impl<'a> Address<'a> {
    fn of(topic: &'a str) -> Option<Self> {
        let mut levels = topic.strip_prefix(NAMESPACE)?.split('/');
        let (group, kind, node) = (levels.next()?, levels.next()?, levels.next()?);
        Some(Self { group, kind, node })
    }

    /// Key of the edge node: `group/node`. Names contain no slash.
    fn node(&self) -> String {
        format!("{}/{}", self.group, self.node)
    }

    fn is_birth(&self) -> bool {
        self.is_first() || self.kind == "DBIRTH"
    }

    /// Whether the message is an NBIRTH, which resets the aliases of its edge node.
    fn is_first(&self) -> bool {
        self.kind == "NBIRTH"
    }
}

/// A part of a payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SparkplugNode<'a> {
    part: Part,
    bytes: &'a [u8],
    aliases: Option<&'a Metrics>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// The payload as an object.
    Payload,
    /// The payload as an array of metrics.
    Metrics,
    /// A metric as an object.
    Metric,
}

type SparkplugValue<'a> = Value<'a, SparkplugNode<'a>>;

impl<'a> DocumentNode<'a> for SparkplugNode<'a> {
    fn fields(
        self,
        keys: &mut SchemaKeys,
        slots: &mut [SparkplugValue<'a>],
    ) -> Result<(), Malformed> {
        match self.part {
            Part::Metric => self.metric_fields(keys, slots),
            _ => self.payload_fields(keys, slots),
        }
    }

    fn items(self, take: &mut dyn FnMut(SparkplugValue<'a>)) -> Result<(), Malformed> {
        for field in MessageFields(self.bytes) {
            if let (METRICS, Wire::Bytes(bytes)) = field? {
                take(Value::Object(Self {
                    part: Part::Metric,
                    bytes,
                    ..self
                }));
            }
        }
        Ok(())
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        None
    }
}

impl<'a> SparkplugNode<'a> {
    fn payload_fields(
        self,
        keys: &mut SchemaKeys,
        slots: &mut [SparkplugValue<'a>],
    ) -> Result<(), Malformed> {
        let mut likely = 0;
        let mut put = |key: &str, value| {
            if let Some(place) = keys.find(key, likely) {
                slots[place] = value;
                likely = place + 1;
            }
        };
        put(
            "_metrics",
            Value::Array(Self {
                part: Part::Metrics,
                ..self
            }),
        );
        for field in MessageFields(self.bytes) {
            match field? {
                (1, Wire::Varint(at_ms)) => put("_timestamp", instant(at_ms)),
                (METRICS, Wire::Bytes(bytes)) => {
                    let metric = RawMetric::read(bytes)?;
                    let (name, datatype) = self.named(&metric)?;
                    put(name, metric.value(datatype)?);
                }
                (3, Wire::Varint(seq)) => put("_seq", integer(seq)),
                (4, Wire::Bytes(uuid)) => put("_uuid", text(uuid)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn metric_fields(
        self,
        keys: &mut SchemaKeys,
        slots: &mut [SparkplugValue<'a>],
    ) -> Result<(), Malformed> {
        let metric = RawMetric::read(self.bytes)?;
        let (name, datatype) = self.named(&metric)?;
        let mut put = |key: &str, value| {
            if let Some(place) = keys.find(key, 0) {
                slots[place] = value;
            }
        };
        put("name", Value::Text(name.into()));
        put("datatype", integer(datatype));
        put("alias", metric.alias.map_or(Value::Null, integer));
        put(
            "timestamp",
            metric.timestamp_ms.map_or(Value::Null, instant),
        );
        put("value", metric.value(datatype)?);
        Ok(())
    }

    /// Name and type of a metric, from the metric itself or from its BIRTH.
    fn named(self, metric: &RawMetric<'a>) -> Result<(&'a str, u64), Malformed> {
        let known = metric.alias.and_then(|alias| self.aliases?.get(&alias));
        let name = metric
            .name
            .or_else(|| known.map(|known| known.name.as_str()));
        let datatype = metric
            .datatype
            .or_else(|| known.map(|known| known.datatype));
        Ok((name.ok_or(Malformed)?, datatype.unwrap_or(0)))
    }
}

const METRICS: u32 = 2;

fn metrics(payload: &[u8]) -> impl Iterator<Item = Result<RawMetric<'_>, Malformed>> {
    MessageFields(payload).filter_map(|field| match field {
        Ok((METRICS, Wire::Bytes(bytes))) => Some(RawMetric::read(bytes)),
        Ok(_) => None,
        Err(Malformed) => Some(Err(Malformed)),
    })
}

/// The fields of a metric in the payload.
#[derive(Clone, Copy, Debug, Default)]
struct RawMetric<'a> {
    name: Option<&'a str>,
    alias: Option<u64>,
    timestamp_ms: Option<u64>,
    datatype: Option<u64>,
    is_null: bool,
    /// Number of the field with the value, and the value.
    value: Option<(u32, Wire<'a>)>,
}

impl<'a> RawMetric<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut metric = Self::default();
        for field in MessageFields(bytes) {
            match field? {
                (1, Wire::Bytes(name)) => metric.name = Some(utf8(name)?),
                (2, Wire::Varint(alias)) => metric.alias = Some(alias),
                (3, Wire::Varint(at_ms)) => metric.timestamp_ms = Some(at_ms),
                (4, Wire::Varint(datatype)) => metric.datatype = Some(datatype),
                (7, Wire::Varint(is_null)) => metric.is_null = is_null != 0,
                (number @ 10..=16, value) => metric.value = Some((number, value)),
                _ => {}
            }
        }
        Ok(metric)
    }

    /// Decodes the value by its field, and by its data type if the field does not determine sign or unit.
    fn value(&self, datatype: u64) -> Result<SparkplugValue<'a>, Malformed> {
        let Some((number, wire)) = self.value.filter(|_| !self.is_null) else {
            return Ok(Value::Null);
        };
        Ok(match (number, wire) {
            (10, Wire::Varint(bits)) => Value::Integer(match datatype {
                INT8 | INT16 | INT32 => i64::from(low_half(bits).cast_signed()),
                _ => i64::from(low_half(bits)),
            }),
            (11, Wire::Varint(bits)) => match datatype {
                INT64 => Value::Integer(bits.cast_signed()),
                DATE_TIME => instant(bits),
                _ => integer(bits),
            },
            (12, Wire::Fixed32(bits)) => Value::Float(f64::from(f32::from_bits(bits))),
            (13, Wire::Fixed64(bits)) => Value::Float(f64::from_bits(bits)),
            (14, Wire::Varint(bit)) => Value::Boolean(bit != 0),
            (15, Wire::Bytes(bytes)) => text(bytes)?,
            (16, Wire::Bytes(bytes)) => Value::Blob(bytes.into()),
            _ => return Err(Malformed),
        })
    }
}

/// Data types that the field does not determine. Source: Sparkplug 3.0, section 6.4.16.
const INT8: u64 = 1;
const INT16: u64 = 2;
const INT32: u64 = 3;
const INT64: u64 = 4;
const DATE_TIME: u64 = 13;

fn text(bytes: &[u8]) -> Result<SparkplugValue<'_>, Malformed> {
    Ok(Value::Text(utf8(bytes)?.into()))
}

fn integer<'a>(number: u64) -> SparkplugValue<'a> {
    i64::try_from(number).map_or(Value::Unsigned(number), Value::Integer)
}

/// Converts milliseconds since 1970 to an instant; to a number if microseconds would overflow.
fn instant<'a>(at_ms: u64) -> SparkplugValue<'a> {
    let micros = i64::try_from(at_ms)
        .ok()
        .and_then(|at_ms| at_ms.checked_mul(1_000));
    micros.map_or(Value::Unsigned(at_ms), Value::Instant)
}
