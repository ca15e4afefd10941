// Screen 2: all clients, filtered and in an order.
import { may, save } from './api.js';
import { figures } from './figures.js';
import { bytes, count, rate } from './format.js';
import { html, useEffect, useRef } from './lib.js';
import { PAGE, usePages } from './pages.js';
import { Dot, Empty, Heading, Name, Partial, Problem, Time } from './parts.js';
import { go, refine } from './route.js';
import { pickColumn, SelectionBar, useSelection } from './selection.js';
import { useStore } from './store.js';
import { Table } from './table.js';

/** Milliseconds between refreshes of a short list whose clients come and go. */
const REFRESHED_MS = 5000;

const COLUMNS = [
  { title: '', width: '22px', cell: (item) => html`<${Dot} on=${item.connected} label=${item.connected ? 'connected' : 'not connected'} />` },
  { title: 'Client', width: 'minmax(120px, 2.5fr)', cell: (item) => html`<${Name} text=${item.client_id} />` },
  { title: 'User', width: 'minmax(60px, 1fr)', class: 'wide', cell: (item) => html`<${Name} text=${item.username} />` },
  { title: 'Address', width: 'minmax(110px, 1.3fr)', class: 'wide', cell: (item) => html`<${Name} text=${item.address} />` },
  { title: 'Listener', width: '64px', class: 'wide', cell: (item) => html`<${Name} text=${item.listener} />` },
  { title: 'MQTT', width: '52px', class: 'wide', cell: (item) => item.version },
  { title: 'Subs', width: '46px', class: 'wide number', cell: (item) => count(item.subscriptions) },
  { title: 'Queue', width: '58px', class: 'number', cell: (item) => html`<span title=${bytes(item.queue.bytes)}>${count(item.queue.messages)}</span>` },
  { title: 'In flight', width: '66px', class: 'wide number', cell: (item) => count(item.inflight.out + item.inflight.in) },
  { title: 'In/s', width: '50px', class: 'wide number', cell: (item) => rate(item.rates?.in) },
  { title: 'Out/s', width: '50px', class: 'wide number', cell: (item) => rate(item.rates?.out) },
  { title: 'Slowest', width: '62px', class: 'wide number', cell: (item) => item.latency && html`<span title="slowest measured delivery">${rate(item.latency.worst_ms)} ms</span>` },
  { title: 'Connected', width: '104px', class: 'wide number', cell: (item) => html`<${Time} ms=${item.connected_at_ms} since />` },
];

const SORTS = [['', 'by identifier'], ['queue', 'longest queue'], ['inflight', 'most in flight'], ['backlog', 'largest backlog'], ['slow', 'slowest'], ['rate_in', 'most packets from it'], ['rate_out', 'most packets to it'], ['connected_at', 'newest connection']];
const STATES = [['', 'all'], ['true', 'connected'], ['false', 'not connected']];
const VERSIONS = [['', 'any version'], ['3.1', '3.1'], ['3.1.1', '3.1.1'], ['5.0', '5.0']];

/** Calls `refresh` some time after clients have come or gone, if the page is in sight. */
function useChanges(isOn, refresh) {
  const call = useRef(refresh);
  call.current = refresh;
  useEffect(() => {
    if (!isOn) return undefined;
    const mark = (values) => [values.sessions, values.clients_connected, values.connections_accepted].join();
    let [seen, at] = [mark(figures.value), 0];
    return figures.listen((values) => {
      if (mark(values) === seen || Date.now() - at < REFRESHED_MS || document.hidden) return;
      [seen, at] = [mark(values), Date.now()];
      call.current();
    });
  }, [isOn]);
}

const Choice = ({ label, name, values, query, set }) =>
  html`<select aria-label=${label} value=${query[name] ?? ''} onChange=${(event) => set(name, event.currentTarget.value)}>
    ${values.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}</select>`;

/** A text filter. Only a change of the filter sets the text: a list that is drawn again must not undo what is typed. */
function Text({ label, hint = label, name, query, set }) {
  const input = useRef();
  const value = query[name] ?? '';
  useEffect(() => {
    input.current.value = value;
  }, [value]);
  return html`<input ref=${input} type="search" placeholder=${hint} aria-label=${label} onChange=${(event) => set(name, event.currentTarget.value.trim())} />`;
}

function Filters({ query }) {
  const set = (name, value) => {
    const { [name]: _, ...rest } = query;
    refine(value ? { ...rest, [name]: value } : rest);
  };
  const part = { query, set };
  return html`<form class="filters" role="search" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    <${Text} label="part of the identifier" hint="identifier" name="q" ...${part} />
    <${Text} label="user" name="user" ...${part} />
    <${Text} label="address or network" hint="address" name="ip" ...${part} />
    <${Text} label="listener" name="listener" ...${part} />
    <${Choice} label="State" name="connected" values=${STATES} ...${part} />
    <${Choice} label="Version" name="version" values=${VERSIONS} ...${part} />
    <${Choice} label="Order" name="sort" values=${SORTS} ...${part} />
  </form>`;
}

function saveAsCsv(items) {
  const names = ['client_id', 'username', 'connected', 'address', 'listener', 'version', 'subscriptions', 'connected_at_ms'];
  // A spreadsheet takes a cell that begins so for a formula.
  const cell = (value) => `"${String(value ?? '').replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
  const lines = items.map((item) => [...names.map((name) => item[name]), item.queue.messages, item.inflight.out].map(cell).join(','));
  const text = [[...names, 'queued', 'in_flight'].join(','), ...lines].join('\r\n');
  save(new Blob([text], { type: 'text/csv' }), 'clients.csv');
}

export function Clients({ query }) {
  const values = useStore(figures);
  const [state, more, restart, refresh] = usePages(['clients'], query);
  const isShort = !state.next && state.items.length <= PAGE;
  useChanges(isShort, refresh);
  const selection = useSelection(state.items);
  const saved = selection.selected.length > 0 ? selection.selected : state.items;
  const isFiltered = Object.keys(query).some((name) => name !== 'sort');
  const total = isFiltered || query.sort ? state.items.length : Math.max(values.sessions ?? 0, state.items.length);
  return html`<div class="full">
    <${Heading} title="Clients">
      <span class="dim">${count(state.items.length)}${state.next ? ' read' : ''}${isFiltered ? ' found' : ` of ${count(values.sessions)}`}</span>
      <button type="button" onClick=${restart}>Refresh</button>
      <button type="button" onClick=${() => saveAsCsv(saved)} disabled=${saved.length === 0} title="The selected rows, else all that were read, as CSV">Save</button>
    </${Heading}>
    <${Filters} query=${query} />
    ${query.sort && state.items.length === PAGE && html`<div class="note">The first ${count(PAGE)} in this order.</div>`}
    <${Partial} partial=${state.partial} />
    <${Problem} error=${state.error} retry=${restart} />
    ${!state.isLoading && !state.error && state.items.length === 0
      ? html`<${Empty}>${isFiltered ? 'No client fits these filters.' : 'No client has a session.'}</${Empty}>`
      : html`<${Table} label="Clients" columns=${may('operate') ? [pickColumn(selection, state.items), ...COLUMNS] : COLUMNS} items=${state.items}
          id=${(item) => item.client_id} total=${total} open=${(item) => go(['clients', item.client_id])} pick=${may('operate') && selection.pick}
          more=${more} hasMore=${Boolean(state.next)} />`}
    <${SelectionBar} selection=${selection} refresh=${isShort ? refresh : () => {}} />
  </div>`;
}
