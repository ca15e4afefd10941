// Figures of the broker, as its events bring them: the last ones, and those of the last hour.
import { address, follow, get, session } from './api.js';
import { Store } from './store.js';

/** Seconds without an event after which figures are shown as old. */
const STALE_S = 5;
const KEPT = 3600;

/** The last figures by name; empty before the first event. */
export const figures = new Store({});
/** The warnings in force. */
export const warnings = new Store([]);
/** What happened last to clients and messages, the newest first, and the last lines of the log. */
export const happened = new Store([]);
export const log = new Store([]);
/** `live`, `stale` or `lost`. */
export const connection = new Store('lost');
/** Samples of the last hour, oldest first: those of the broker's history, then one for each event. */
export const samples = [];

const RATED = { received: 'messages_received', sent: 'messages_sent', bytesIn: 'bytes_received', bytesOut: 'bytes_sent' };
/** Counters of dropped messages with lines of their own; `lostOther` is the rest. */
const LOST = { lostQueue: 'dropped_queue_full', lostSlow: 'dropped_qos0_backlog', lostOffline: 'dropped_offline', lostExpired: 'dropped_expired' };
/** Percentiles of deliveries, in microseconds; 0 where none was measured. */
const MEASURED = { p50: 'deliver_p50_us', p99: 'deliver_p99_us' };
/** The metric of the broker's history for each field of a sample. */
const METRICS = { ...RATED, ...LOST, ...MEASURED, dropped: 'dropped', connected: 'clients_connected', sessions: 'sessions', memory: 'memory_used_bytes' };
/** The sample with the rest of the dropped messages. */
const withRest = (one) => ({ ...one, lostOther: Number.isFinite(one.dropped) ? Math.max(0, Object.keys(LOST).reduce((rest, name) => rest - (one[name] ?? 0), one.dropped)) : null });

const dropped = (values) =>
  Object.entries(values).reduce((sum, [name, value]) => (name.startsWith('dropped_') ? sum + value : sum), 0);

let before = null;
let seen = 0;

/** Adds a sample with the rates since the last one. */
function sample(values) {
  const now = Date.now() / 1000;
  const counters = { dropped: dropped(values) };
  for (const [name, figure] of Object.entries({ ...RATED, ...LOST })) counters[name] = values[figure] ?? 0;
  const taken = { t: now, connected: values.clients_connected ?? 0, sessions: values.sessions ?? 0, memory: values.memory_used_bytes ?? 0 };
  for (const [name, figure] of Object.entries(MEASURED)) taken[name] = values[figure] || null;
  const passed = before ? Math.max(now - before.now, 0.2) : 0;
  for (const name of Object.keys(counters)) {
    // A counter that has become smaller belongs to a new process.
    taken[name] = passed ? Math.max(0, (counters[name] - before.counters[name]) / passed) : null;
  }
  before = { now, counters };
  samples.push(withRest(taken));
  if (samples.length > KEPT) samples.shift();
}

/** Samples of the last `seconds` from the broker's history; times are those of this machine's clock. */
export async function past(seconds, signal) {
  const query = { metric: Object.values(METRICS).join(','), from: -seconds, step: seconds > KEPT ? 60 : 1 };
  const { step_s, from_ms, as_of_ms, metrics } = await get(address(['history'], query), signal);
  const now = Date.now() / 1000;
  const begin = now - (as_of_ms - from_ms) / 1000;
  return metrics.sessions.map((_, at) => {
    const values = Object.entries(METRICS).map(([field, metric]) => [field, metrics[metric][at]]);
    return withRest({ t: Math.min(begin + (at + 1) * step_s, now), ...Object.fromEntries(values) });
  });
}

/** Puts the broker's history in the place of the samples of its time. */
async function recall(signal) {
  const rows = await past(KEPT, signal);
  if (signal.aborted) return;
  const older = samples.filter((one) => one.t < rows[0].t);
  const newer = samples.filter((one) => one.t > rows.at(-1).t);
  samples.splice(0, samples.length, ...[...older, ...rows, ...newer].slice(-KEPT));
}

const RECENT = 200;
const put = (store, data) => store.set([{ ...data, key: Math.random() }, ...store.value.slice(0, RECENT - 1)]);

function take(kind, data) {
  if (kind === 'client' || kind === 'drop') put(happened, data);
  if (kind === 'log') put(log, data);
  // The latest lines follow.
  if (kind === 'lost' && data.lost === null) log.set([]);
  if (kind === 'warnings') warnings.set(data);
  if (kind !== 'stats') return;
  seen = Date.now();
  connection.set('live');
  const values = { ...figures.value, ...data };
  sample(values);
  figures.set(values);
}

/** Reads events until the caller logs out; connects again when they end. */
async function stay(signal) {
  const place = {};
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10_000)) {
    const begun = Date.now();
    recall(signal).catch(() => {}); // Without it, charts begin now.
    await follow('/events', take, signal, place).catch(() => {});
    if (signal.aborted) return;
    connection.set('lost');
    before = null;
    if (Date.now() - begun > 10_000) wait = 500;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** Follows the events whenever somebody is logged in. */
export function start() {
  let control = null;
  const change = (caller) => {
    control?.abort();
    control = caller ? new AbortController() : null;
    if (control) stay(control.signal);
    else forget();
  };
  session.listen(change);
  change(session.value);
  setInterval(() => {
    if (connection.value === 'live' && Date.now() - seen > STALE_S * 1000) connection.set('stale');
  }, 1000);
}

function forget() {
  samples.length = 0;
  before = null;
  figures.set({});
  warnings.set([]);
  happened.set([]);
  log.set([]);
  connection.set('lost');
}
