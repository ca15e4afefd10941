// Payloads of Sparkplug B: protobuf messages with metrics, which may have an alias in place of a name.
import { hex, Reader, refuse } from './binary.js';

/** Templates within templates. */
const MAX_DEPTH = 8;
/** Metrics that are read of a payload. */
const MAX_METRICS = 10_000;
/** Bytes of BIRTH messages that are kept, for their aliases. */
const KEPT_BYTES = 8 << 20;
const TOPIC = /^(?:\$sparkplug\/certificates\/)?spBv1\.0\/([^/]+)\/[ND](BIRTH|DEATH|DATA|CMD)\/([^/]+(?:\/[^/]+)?)$/;
const TYPES = ['', 'Int8', 'Int16', 'Int32', 'Int64', 'UInt8', 'UInt16', 'UInt32', 'UInt64', 'Float', 'Double', 'Boolean', 'String', 'DateTime', 'Text', 'UUID', 'DataSet', 'Bytes', 'File', 'Template', 'PropertySet', 'PropertySetList'];
/** Bits of the signed types, and the type of a time. */
const SIGNED = { 1: 8, 2: 16, 3: 32, 4: 64 };
const DATE_TIME = 13;

function varint(reader) {
  let value = 0n;
  for (let shift = 0n; shift < 70n; shift += 7n) {
    const byte = reader.number('Uint8', 1);
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) return BigInt.asUintN(64, value);
  }
  return refuse();
}

/** What follows the number of a field, by its wire type. */
const WIRES = { 0: varint, 1: (reader) => reader.bytes(8), 2: (reader) => reader.bytes(Number(varint(reader))), 5: (reader) => reader.bytes(4) };

const whole = (raw) => (typeof raw === 'bigint' ? raw : refuse());
const small = (raw) => Number(whole(raw));
const flag = (raw) => whole(raw) !== 0n;
const text = (raw) => new Reader(raw).text(raw.length);
/** A number with a fraction, least significant byte first; text if JSON has no such number. */
function fraction(raw, size) {
  if (raw.length !== size) refuse();
  return new Reader(raw.slice().reverse()).float(size);
}

const double = (raw) => fraction(raw, 8);

/** The shortest number that is the same in 32 bits. */
function float(raw) {
  const value = fraction(raw, 4);
  if (typeof value === 'string') return value;
  const shorter = [6, 7, 8, 9].map((digits) => Number(value.toPrecision(digits)));
  return shorter.find((one) => Math.fround(one) === value) ?? value;
}

/** Reads a message. `fields`: `[name, read(raw, depth), most]` by number; with `most`, a list of at most so many. */
function message(raw, fields, depth) {
  if (depth > MAX_DEPTH) refuse();
  const reader = new Reader(raw);
  const found = {};
  while (reader.at < raw.length) {
    const key = small(varint(reader));
    const content = (WIRES[key % 8] ?? refuse)(reader);
    const [name, read, most] = fields[Math.floor(key / 8)] ?? [];
    if (most) (found[name] ??= []).length < most && found[name].push(read(content, depth + 1));
    else if (name) found[name] = read(content, depth + 1);
  }
  return found;
}

/** The values of a metric, a parameter or a cell, whose numbers begin at `first`. */
const values = (first) => Object.fromEntries([whole, whole, float, double, flag, text].map((read, at) => [first + at, ['value', read]]));

const number = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : String(value));
const time = (ms) => (Number(ms) <= 8.64e15 ? new Date(Number(ms)).toISOString() : String(ms));

function readable(value, type) {
  if (typeof value !== 'bigint') return value ?? null;
  if (type === DATE_TIME) return time(value);
  return number(SIGNED[type] ? BigInt.asIntN(SIGNED[type], value) : value);
}

const CELL = values(1);
const ROW = { 1: ['cells', (raw, depth) => message(raw, CELL, depth).value, 1000] };
const DATA_SET = { 2: ['columns', text, 1000], 3: ['types', small, 1000], 4: ['rows', (raw, depth) => message(raw, ROW, depth).cells ?? [], 1000] };

function dataSet(raw, depth) {
  const { columns = [], types = [], rows = [] } = message(raw, DATA_SET, depth);
  return { columns, rows: rows.map((cells) => cells.map((cell, at) => readable(cell, types[at]))) };
}

const METRIC = {
  1: ['name', text],
  2: ['alias', whole],
  3: ['ms', small],
  4: ['type', small],
  5: ['isHistorical', flag],
  7: ['isNull', flag],
  ...values(10),
  16: ['value', hex],
  17: ['value', dataSet],
  18: ['value', (raw, depth) => named(metricsOf(message(raw, { 2: PAYLOAD[2] }, depth).metrics))],
};
const PAYLOAD = { 1: ['ms', small], 2: ['metrics', (raw, depth) => message(raw, METRIC, depth), MAX_METRICS], 3: ['seq', small] };

/** Metrics with their names and values. `births`: name and type by alias. */
const metricsOf = (metrics = [], births = new Map()) =>
  metrics.map(({ name, alias, type, value, isNull, ms, isHistorical }) => {
    const born = births.get(alias) ?? {};
    const known = type ?? born.type;
    const own = name ?? born.name ?? (alias === undefined ? '' : `alias ${alias}`);
    return { name: own, alias, type: TYPES[known ?? 0] ?? `type ${known}`, value: isNull ? null : readable(value, known), ms, isHistorical };
  });

function named(metrics) {
  const found = Object.create(null);
  for (const { name, value } of metrics) found[name] = value;
  return found;
}

/** The last BIRTH of each node and device, the oldest first. */
const births = new Map();
let kept = 0;

/** Keeps the payload of a BIRTH. */
export function noteBirth(topic, data) {
  if (!topic.includes('BIRTH/')) return;
  const [, group, kind, source] = TOPIC.exec(topic) ?? [];
  const key = `${group}/${source}`;
  if (kind !== 'BIRTH' || births.get(key)?.data === data) return;
  const drop = (one) => {
    kept -= births.get(one)?.data.length ?? 0;
    births.delete(one);
  };
  drop(key);
  births.set(key, { data });
  kept += data.length;
  while (kept > KEPT_BYTES) drop(births.keys().next().value);
}

/** Names and types by alias, of the BIRTH of a node or device. */
function aliases(key) {
  const birth = births.get(key);
  if (!birth) return undefined;
  if (!birth.names) {
    birth.names = new Map();
    try {
      for (const metric of message(birth.data, PAYLOAD, 0).metrics ?? []) if (metric.name) birth.names.set(metric.alias, metric);
    } catch {
      // A false BIRTH names nothing.
    }
  }
  return birth.names;
}

/** The payload of a topic of Sparkplug, as `{kind, value, metrics, seq, ms}`; undefined if it is none. */
export function sparkplug(topic, data) {
  const [, group, , source] = TOPIC.exec(topic) ?? [];
  if (!group || data.length === 0) return undefined;
  noteBirth(topic, data);
  try {
    const { metrics, seq, ms } = message(data, PAYLOAD, 0);
    const shown = metricsOf(metrics, aliases(`${group}/${source}`));
    return { kind: 'Sparkplug B', value: named(shown), metrics: shown, seq, ms };
  } catch {
    return undefined;
  }
}
