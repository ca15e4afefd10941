// Numbers, times and texts of strangers, for people.
import { unpacked } from './binary.js';
import { sparkplug } from './sparkplug.js';

const UNITS = ['', 'k', 'M', 'G', 'T'];
const BYTES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

function scaled(value, base, units, gap) {
  let step = 0;
  while (Math.abs(value) >= base && step < units.length - 1) {
    value /= base;
    step += 1;
  }
  const digits = step === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)}${gap}${units[step]}`.trim();
}

/** A count, in full up to 99,999. */
export function count(value) {
  if (value === undefined || value === null) return '–';
  return Math.abs(value) < 100_000 ? Math.round(value).toLocaleString('en-US') : scaled(value, 1000, UNITS, ' ');
}

export function rate(value) {
  if (value === undefined || value === null) return '–';
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}

export function bytes(value) {
  return value === undefined || value === null ? '–' : scaled(value, 1024, BYTES, ' ');
}

/** A short duration, given in microseconds. */
export function micros(value) {
  if (value === undefined || value === null) return '–';
  const [unit, size] = value < 1000 ? ['µs', 1] : value < 1_000_000 ? ['ms', 1000] : ['s', 1_000_000];
  return `${Number((value / size).toPrecision(3))} ${unit}`;
}

/** A duration in its largest two units. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return '–';
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [Math.floor(seconds) % 60, 's'],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return '0 s';
  const shown = parts.slice(first, first + 2).filter(([value]) => value > 0);
  return shown.map(([value, unit]) => `${value} ${unit}`).join(' ');
}

export const ago = (ms, now = Date.now()) => (ms ? `${duration(Math.max(0, (now - ms) / 1000))} ago` : '–');

// `toLocaleTimeString` makes a formatter at each call: 30 of them a frame cost more than all the rest of a list.
const two = (value) => String(value).padStart(2, '0');
const day = (time) => `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
const minute = (time) => `${two(time.getHours())}:${two(time.getMinutes())}`;

/** Local time, with the date if it is not today. */
export function clock(ms) {
  const time = new Date(ms);
  const text = `${minute(time)}:${two(time.getSeconds())}`;
  return day(time) === day(new Date()) ? text : `${day(time)} ${text}`;
}

/** A time on the axis of a chart of so many seconds. */
export function tick(ms, seconds) {
  if (seconds <= 3600) return clock(ms);
  const time = new Date(ms);
  const isDay = seconds > 86_400 && time.getHours() === 0;
  return isDay ? day(time).slice(5) : minute(time);
}

export const utc = (ms) => `${new Date(ms).toISOString().replace('T', ' ').replace('Z', '')} UTC`;

// Control characters, marks that change the direction of text, and characters without width.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A text of a stranger in which nothing is invisible or changes the order of what is around it. */
export function visible(text) {
  const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return String(text ?? '').replace(HIDDEN, escaped);
}

/** As `visible`, but lines and tabs stay. */
export function visibleLines(text) {
  return String(text).split(/\r?\n/).map((line) => line.split('\t').map(visible).join('\t')).join('\n');
}

const MAX_SHOWN = 64 * 1024;

/** Levels of a value that is shown as one. */
const MAX_DEPTH = 64;

const isDeep = (value, left = MAX_DEPTH) => typeof value === 'object' && value !== null && (left === 0 || Object.values(value).some((inner) => isDeep(inner, left - 1)));

const indented = (value) => visibleLines(JSON.stringify(value, null, 2));

/**
 * A payload as text: JSON, CBOR, MessagePack and, on its topics, Sparkplug B are indented, what else is not UTF-8 is hexadecimal. Returns
 * `{kind, text, value}`, for Sparkplug B also what `sparkplug` found.
 */
export function payload(data, topic = '') {
  if (data.length === 0) return { kind: 'empty', text: '' };
  const metrics = sparkplug(topic, data);
  if (metrics) return { ...metrics, text: indented(metrics.value) };
  const shown = data.subarray(0, MAX_SHOWN);
  const rest = data.length > MAX_SHOWN ? `\n… ${count(data.length - MAX_SHOWN)} bytes more` : '';
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(shown, { stream: true });
    if (rest) return { kind: 'text', text: visibleLines(text) + rest };
    try {
      const value = JSON.parse(text);
      if (isDeep(value)) return { kind: 'text', text: visibleLines(text) };
      if (typeof value === 'object') return { kind: 'JSON', text: indented(value), value };
      return { kind: 'text', text: visibleLines(text), value };
    } catch {
      // Not JSON.
    }
    return { kind: 'text', text: visibleLines(text) };
  } catch {
    const found = !rest && unpacked(data);
    if (found) return { ...found, text: indented(found.value) };
    return { kind: 'hexadecimal', text: hexadecimal(shown.subarray(0, 4096)) + (data.length > 4096 ? '\n…' : '') };
  }
}

function hexadecimal(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    const text = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(4, '0')}  ${digits}  ${text}`);
  }
  return lines.join('\n');
}

/** The bytes of a text in base64. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
