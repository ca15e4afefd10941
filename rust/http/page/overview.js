// Screen 1: figures, charts, warnings, and the clients that need attention.
import { address, get } from './api.js';
import { Chart } from './chart.js';
import { connection, figures, past, samples, warnings } from './figures.js';
import { bytes, count, duration, micros, rate } from './format.js';
import { Latest } from './happened.js';
import { html, useEffect, useState } from './lib.js';
import { Empty, Facts, Heading, Name, Plain, Problem } from './parts.js';
import { link } from './route.js';
import { useLoad, useStore } from './store.js';

const SPANS = [[300, '5 min'], [3600, '1 h'], [86_400, '24 h'], [604_800, '7 d']];
const NONE = [];
const LOST = [
  { name: 'queue full', field: 'lostQueue' },
  { name: 'slow reader', field: 'lostSlow' },
  { name: 'offline', field: 'lostOffline' },
  { name: 'expired', field: 'lostExpired' },
  { name: 'other', field: 'lostOther' },
];

const Tile = ({ title, value, more, href, warn }) => {
  const content = html`<span>${title}</span><strong>${value}</strong><small>${more}</small>`;
  return href ? html`<a class=${`tile${warn ? ' warn' : ''}`} href=${href}>${content}</a>` : html`<div class=${`tile${warn ? ' warn' : ''}`}>${content}</div>`;
};

/** Messages dropped within the last minute, as far as it was seen. */
function droppedWithinMinute() {
  const begin = Date.now() / 1000 - 60;
  let last = null;
  let sum = 0;
  for (const sample of samples) {
    if (sample.t >= begin && last !== null) sum += (sample.dropped ?? 0) * (sample.t - last);
    last = sample.t;
  }
  return sum;
}

function Tiles({ values }) {
  const last = samples.at(-1) ?? {};
  const dropped = droppedWithinMinute();
  const budget = values.memory_budget_bytes;
  const used = budget ? values.memory_used_bytes / budget : 0;
  const sync = values.store_sync_p99_us;
  return html`<section class="tiles" aria-label="Figures">
    <${Tile} title="Clients connected" value=${count(values.clients_connected)} more=${`${count(values.sessions)} sessions`} href="#/clients" />
    <${Tile} title="Messages in" value=${perSecond(last.received, rate)} more=${perSecond(last.bytesIn, bytes)} />
    <${Tile} title="Messages out" value=${perSecond(last.sent, rate)} more=${perSecond(last.bytesOut, bytes)} />
    <${Tile} title="Dropped" value=${count(dropped)} more="in the last minute" warn=${dropped >= 1} />
    ${sync !== undefined && html`<${Tile} title="Sync, p99" value=${`${(sync / 1000).toFixed(1)} ms`} more="of the store" />`}
    <${Tile} title="Memory" value=${bytes(values.memory_used_bytes)} more=${budget ? `${(used * 100).toFixed(0)} % of ${bytes(budget)}` : ''} warn=${used > 0.9} />
  </section>`;
}

const Warnings = ({ list }) =>
  html`<section aria-label="Warnings"><h2>Warnings</h2>
    ${list.length === 0 ? html`<${Empty}>None.</${Empty}>` : html`<ul class="warnings">${list.map(
      (one) => html`<li key=${one.text}><strong>${one.code}: ${one.text}</strong><div>${one.fix}</div></li>`,
    )}</ul>`}
  </section>`;

/** The clients that are first in an order. */
function Top({ title, sort, query, cell }) {
  const { data, error, reload } = useLoad((signal) => get(address(['clients'], { sort, limit: 5, ...query }), signal), [sort]);
  const items = data?.items ?? [];
  return html`<section><h2>${title} <button type="button" class="quiet small" onClick=${reload}>Refresh</button></h2>
    <${Problem} error=${error} />
    ${data && items.length === 0 ? html`<${Empty}>None.</${Empty}>` : html`<${Plain} label=${title} rows=${items} columns=${[
      { title: 'Client', cell: (item) => html`<a href=${link(['clients', item.client_id])}><${Name} text=${item.client_id} /></a>` },
      { title: 'Value', class: 'number', cell },
    ]} />`}
    <a class="small" href=${link(['clients'], { sort })}>All clients in this order</a>
  </section>`;
}

/** Counters by reason, of those figures that begin with `prefix`. */
function Reasons({ title, prefix, values, none }) {
  const rows = Object.entries(values).filter(([name, value]) => name.startsWith(prefix) && value > 0);
  return html`<section><h2>${title}</h2>${rows.length === 0 ? html`<${Empty}>${none}</${Empty}>`
    : html`<${Facts} rows=${rows.map(([name, value]) => [name.slice(prefix.length).replaceAll('_', ' '), count(value)])} />`}</section>`;
}

/** The samples of the last `seconds`: those of long spans are loaded again now and then. */
function useSamples(seconds) {
  const isLong = seconds > 3600;
  const { data, error, reload } = useLoad(async (signal) => (isLong ? past(seconds, signal) : NONE), [seconds]);
  useEffect(() => {
    const timer = isLong ? setInterval(reload, seconds) : 0; // a thousandth of the span
    return () => clearInterval(timer);
  }, [seconds]);
  return [isLong ? (data ?? NONE) : samples, error];
}

/** A rate a second. */
const perSecond = (value, format) => (value === undefined || value === null ? '–' : `${format(value)}/s`);

export function Overview({ theme }) {
  const values = useStore(figures);
  const state = useStore(connection);
  const list = useStore(warnings);
  const [seconds, span] = useState(300);
  const { data, error } = useLoad((signal) => get('/overview', signal), []);
  const [source, lost] = useSamples(seconds);
  const chart = (title, series, format, isStacked) => html`<${Chart} title=${title} series=${series} format=${format} source=${source} seconds=${seconds} theme=${theme} isStacked=${isStacked} />`;
  return html`<div class=${state === 'live' ? '' : 'stale'}>
    <${Heading} title="Overview">${SPANS.map(([length, name]) => html`<button type="button" class=${length === seconds ? 'chosen' : ''}
      aria-pressed=${length === seconds} onClick=${() => span(length)}>${name}</button>`)}</${Heading}>
    <${Problem} error=${error ?? lost} />
    <${Tiles} values=${values} />
    ${list.length > 0 && html`<${Warnings} list=${list} />`}
    <section class="charts" aria-label="Charts">
      ${chart('Messages a second', [{ name: 'in', field: 'received' }, { name: 'out', field: 'sent' }, { name: 'dropped', field: 'dropped' }], rate)}
      ${chart('Time to deliver', [{ name: 'p50', field: 'p50' }, { name: 'p99', field: 'p99' }], micros)}
      ${chart('Dropped a second', LOST, rate, true)}
      ${chart('Clients', [{ name: 'connected', field: 'connected' }, { name: 'sessions', field: 'sessions' }], count)}
      ${chart('Bytes a second', [{ name: 'in', field: 'bytesIn' }, { name: 'out', field: 'bytesOut' }], bytes)}
      ${chart('Memory', [{ name: 'used', field: 'memory' }], bytes)}
    </section>
    <p class="dim small">With a data folder, charts go back seven days, else to the start of the broker. Times to deliver are those of a sample, from the read of a PUBLISH until it was written to the subscriber.</p>
    <${Latest} />
    <div class="columns">
      <${Top} title="Longest queues" sort="queue" query=${{ min_queue: 1 }} cell=${(item) => count(item.queue.messages)} />
      <${Top} title="Busiest senders" sort="rate_in" query=${{ connected: true }} cell=${(item) => `${rate(item.rates?.in)} packets/s`} />
      <${Top} title="Most in flight" sort="inflight" query=${{ min_inflight: 1 }} cell=${(item) => count(item.inflight.out)} />
      <${Reasons} title="Dropped since the start" prefix="dropped_" values=${values} none="Nothing was dropped." />
      <${Reasons} title="Refused since the start" prefix="refused_" values=${values} none="Nothing was refused." />
    </div>
    ${data && html`<section><h2>Broker</h2><${Facts} rows=${[
      ['Version', data.version],
      ['Running for', duration(values.uptime_s ?? data.uptime_s)],
      ['Machine', html`<${Name} text=${data.node} />`],
      ['Durability', data.durability],
      ['Disk', { none: 'enough room', soft: 'nearly full', hard: 'full' }[data.disk_pressure]],
      ['Subscriptions', count(values.subscriptions)],
      ['Retained messages', count(values.retained_messages)],
    ]} /></section>`}
  </div>`;
}
