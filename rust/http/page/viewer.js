// A payload: its value, what has changed in it, and its bytes.
import { fieldChanges, firstChange, lineChanges } from './diff.js';
import { count, payload, visible } from './format.js';
import { html, useMemo, useState } from './lib.js';
import { Name, Plain, Tabs, Time } from './parts.js';

/** Lines, metrics and bytes that are shown. */
const MAX_LINES = 500;
const MAX_BYTES = 4096;
const MAX_TEXT = 1000;

const SIGNS = { '+': 'added', '-': 'removed', '~': 'changed' };

const cut = (text) => visible(text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text);

function Metrics({ shown: { metrics, seq, ms } }) {
  return html`<p class="dim">${count(metrics.length)} metrics${seq !== undefined && `, sequence number ${seq}`}${ms !== undefined && ms < 8.64e15 && html`, of <${Time} ms=${ms} />`}</p>
    <div class="payload"><${Plain} label="Metrics" rows=${metrics.slice(0, MAX_LINES)} columns=${[
      { title: 'Metric', cell: (one) => html`<${Name} text=${cut(one.name)} />${one.isHistorical && html` <span class="dim">historical</span>`}` },
      { title: 'Type', class: 'wide', cell: (one) => one.type },
      { title: 'Value', cell: (one) => html`<${Name} text=${cut(typeof one.value === 'string' ? one.value : JSON.stringify(one.value))} empty="(empty)" />` },
    ]} /></div>
    ${metrics.length > MAX_LINES && html`<p class="dim">The first ${count(MAX_LINES)}.</p>`}`;
}

const Lines = ({ lines }) => html`<pre class="payload diff">${lines.slice(0, MAX_LINES).map(
  ({ sign, text }) => html`<div class=${SIGNS[sign]} aria-label=${SIGNS[sign]}>${`${sign} ${cut(text)}`}</div>`,
)}${lines.length > MAX_LINES && `… ${count(lines.length - MAX_LINES)} lines more`}</pre>`;

/** Bytes from `from` on, 16 in a line; those that `isChanged(at)` are marked. */
function Bytes({ data, from = 0, isChanged = () => false }) {
  const end = Math.min(data.length, from + MAX_BYTES);
  const lines = [];
  for (let at = from; at < end; at += 16) {
    const row = Array.from(data.subarray(at, Math.min(at + 16, end)), (byte, index) => [byte, isChanged(at + index)]);
    const part = (text, changed, index) => (changed ? html`<mark key=${index}>${text}</mark>` : text);
    const digits = row.map(([byte, changed], index) => [index > 0 && ' ', part(byte.toString(16).padStart(2, '0'), changed, index)]);
    const letters = row.map(([byte, changed], index) => part(byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.', changed, index));
    lines.push(html`<div key=${at}>${at.toString(16).padStart(4, '0')}  ${digits}${' '.repeat(3 * (16 - row.length) + 2)}${letters}</div>`);
  }
  return html`<pre class="payload">${lines}${end < data.length && `… ${count(data.length - end)} bytes more`}</pre>`;
}

function Changes({ before, data, topic, shown }) {
  const old = useMemo(() => payload(before, topic), [before, topic]);
  const first = useMemo(() => firstChange(before, data), [before, data]);
  const isBinary = [old, shown].some(({ kind }) => kind === 'hexadecimal');
  const lines = useMemo(() => {
    if (isBinary) return [];
    const isObject = [old, shown].every(({ value }) => value && typeof value === 'object');
    return isObject ? fieldChanges(old.value, shown.value) : lineChanges(old.text, shown.text);
  }, [old, shown]);
  const isSame = first === Math.max(before.length, data.length);
  if (isSame) return html`<p class="dim">The same bytes as in the message before.</p>`;
  if (!isBinary) return lines.length > 0 ? html`<${Lines} lines=${lines} />` : html`<p class="dim">The bytes differ, the values do not.</p>`;
  const more = data.length - before.length;
  return html`<p class="dim">${more === 0 ? 'As many bytes as before.' : `${count(Math.abs(more))} bytes ${more > 0 ? 'more' : 'fewer'} than before.`}</p>
    <${Bytes} data=${data} from=${Math.min(first, data.length) & ~15} isChanged=${(at) => before[at] !== data[at]} />`;
}

/** The payload `data` of a message of `topic`; `before`: that of the message before, if it is known. */
export function PayloadView({ topic, data, before }) {
  const [chosen, choose] = useState('value');
  const shown = useMemo(() => payload(data, topic), [data, topic]);
  const tabs = [['value', 'Value'], before && ['changes', 'Changes'], data.length > 0 && ['bytes', 'Bytes']].filter(Boolean);
  const current = tabs.some(([id]) => id === chosen) ? chosen : 'value';
  return html`<${Tabs} label="Payload" tabs=${tabs} current=${current} choose=${choose} />
    ${current === 'changes' ? html`<${Changes} before=${before} data=${data} topic=${topic} shown=${shown} />`
      : current === 'bytes' ? html`<${Bytes} data=${data} />`
      : shown.metrics ? html`<${Metrics} shown=${shown} />` : html`<pre class="payload">${shown.text}</pre>`}`;
}
