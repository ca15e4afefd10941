// Recent events: why clients did not get messages, and when they came and went.
import { address, get } from './api.js';
import { happened } from './figures.js';
import { count } from './format.js';
import { html, useEffect } from './lib.js';
import { Empty, Name, Partial, Plain, Problem, Time } from './parts.js';
import { link } from './route.js';
import { useLoad, useStore } from './store.js';

const WORDS = {
  auth_failed: 'login refused',
  publish_refused: 'publish refused',
  session_created: 'session created',
  session_resumed: 'session resumed',
  session_taken_over: 'session taken over',
  session_expired: 'session expired',
};
const BAD = new Set(['auth_failed', 'denied', 'dropped', 'publish_refused']);

const code = (value) => (value === null ? '' : ` (0x${value.toString(16).padStart(2, '0')})`);

const COLUMNS = [
  { title: 'Time', cell: (item) => html`<${Time} ms=${item.last_ms} />` },
  { title: 'Event', cell: (item) => html`<span class=${BAD.has(item.event) ? 'danger' : ''}>${WORDS[item.event] ?? item.event}</span>` },
  { title: 'Client', cell: (item) => html`<a href=${link(['clients', item.client_id])}><${Name} text=${item.client_id} /></a>` },
  { title: 'Topic or filter', cell: (item) => html`<${Name} text=${item.topic} empty="" />` },
  { title: 'Times', class: 'number', cell: (item) => count(item.count) },
  { title: 'Reason', cell: (item) => `${item.why ?? ''}${code(item.reason_code)}` },
];

/** What happens, as it happens. */
export function Latest() {
  const items = useStore(happened).slice(0, 12);
  return html`<section aria-label="What happens now"><h2>What happens now</h2>
    ${items.length === 0 ? html`<${Empty}>Nothing since this page was opened.</${Empty}>` : html`<${Plain} label="Latest events" rows=${items} columns=${COLUMNS} />`}
    <a class="small" href=${link(['explain'], { tab: 'after' })}>What happened before</a>
  </section>`;
}

/** The events that fit `query`; loads again when one of the kinds `only` happens. `more` are columns behind the others. */
export function EventList({ query, label, only, more = [] }) {
  const { data, error, reload } = useLoad((signal) => get(address(['explain', 'delivery'], { limit: 1000, ...query }), signal), [JSON.stringify(query)]);
  useEffect(() => {
    let timer = 0;
    const end = happened.listen(([newest]) => {
      // One load for all that happens within a second.
      if (only?.includes(newest?.event)) timer ||= setTimeout(() => { timer = 0; reload(); }, 1000);
    });
    return () => { end(); clearTimeout(timer); };
  }, []);
  const items = data?.items;
  const columns = [...COLUMNS.filter((column) => !query.client || column.title !== 'Client'), ...more];
  return html`<div><p class="actions"><button type="button" class="small" onClick=${reload}>Refresh</button></p>
    <${Problem} error=${error} retry=${reload} /><${Partial} partial=${data?.partial} />
    ${items?.length === 0 && html`<${Empty}>Nothing that is known.</${Empty}>`}
    ${items?.length > 0 && html`<${Plain} label=${label} rows=${items} columns=${columns} />`}
    ${data?.has_more && html`<p class="dim">The newest 1,000.</p>`}
    ${data?.complete_since_ms && html`<p class="dim">Events before <${Time} ms=${data.complete_since_ms} /> may be missing.</p>`}</div>`;
}
