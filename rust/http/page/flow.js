// Screen 6: streams, and Spark queries that read them.
import { get } from './api.js';
import { figures } from './figures.js';
import { count } from './format.js';
import { html } from './lib.js';
import { Empty, Heading, Name, Plain, Problem, Time } from './parts.js';
import { useLoad, useStore } from './store.js';

const sum = (stream, value) => stream.partitions.reduce((total, partition) => total + value(partition), 0);

const PARTITIONS = [
  { title: 'Partition', class: 'number', cell: ([, number]) => number },
  { title: 'First row', class: 'number', cell: ([one]) => count(one.earliest) },
  { title: 'In files up to', class: 'number', cell: ([one]) => count(one.sealed_end) },
  { title: 'End', class: 'number', cell: ([one]) => count(one.end) },
  { title: 'Not in files', class: 'number', cell: ([one]) => count(one.unsealed) },
];

const HOLDS = [
  { title: 'Consumer', cell: (one) => html`<${Name} text=${one.consumer} />` },
  { title: 'Next row of each partition', cell: (one) => one.offsets.map(count).join(', ') },
  { title: 'Rows to read', class: 'number', cell: (one) => count(one.lag) },
];

const Stream = ({ stream }) =>
  html`<section><h2><${Name} text=${stream.name} /></h2>
    <p class="dim">Topics ${stream.filters.map((filter, at) => html`${at > 0 && ', '}<${Name} key=${filter} text=${filter} />`)}
      ${` – ${count(sum(stream, (one) => one.end - one.earliest))} rows`}, ${count(sum(stream, (one) => one.unsealed))} of them not in files yet</p>
    <${Plain} label=${`Partitions of ${stream.name}`} columns=${PARTITIONS} rows=${stream.partitions.map((one, at) => [one, at])} />
    ${stream.holds.length > 0 && html`<${Plain} label=${`Consumers of ${stream.name}`} columns=${HOLDS} rows=${stream.holds} />`}
  </section>`;

const QUERIES = [
  { title: 'Query', cell: (one) => html`<${Name} text=${one.query} />` },
  { title: 'Reported', cell: (one) => html`<${Time} ms=${one.reported_at_ms} since />` },
  ...['batch', 'rows', 'rows_per_s', 'lag_messages', 'lag_s'].map((name) => (
    { title: name.replaceAll('_', ' '), class: 'number', cell: ({ report }) => (typeof report[name] === 'number' ? count(Math.round(report[name])) : '–') })),
];

export function Flow() {
  const values = useStore(figures);
  const { data, error, reload: again } = useLoad((signal) => get('/streams', signal), []);
  const queries = useLoad((signal) => get('/queries', signal), []);
  const reload = () => { again(); queries.reload(); };
  const dropped = values.streams_rows_dropped;
  return html`<div><${Heading} title="Streams"><button type="button" onClick=${reload}>Refresh</button></${Heading}>
    <${Problem} error=${error} retry=${reload} />
    ${dropped > 0 && html`<div class="note">${count(dropped)} rows were dropped since the start.</div>`}
    ${data?.items.length === 0 && html`<${Empty}>The broker keeps no stream. A table <code>[[streams]]</code> of the configuration makes one.</${Empty}>`}
    ${queries.data?.items.length > 0 && html`<section><h2>Spark queries</h2><${Plain} label="Spark queries" columns=${QUERIES} rows=${queries.data.items} /></section>`}
    ${data?.items.map((stream) => html`<${Stream} key=${stream.name} stream=${stream} />`)}
  </div>`;
}
