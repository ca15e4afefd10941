// Plugins: what became of the calls of their hooks, how long they take, and reading their files again.
import { address, get, may } from './api.js';
import { count } from './format.js';
import { html } from './lib.js';
import { change, Empty, Name, Plain, Problem } from './parts.js';
import { useLoad } from './store.js';

const FAILED = ['failed', 'timed_out', 'shut_out'];

const Results = ({ results }) => {
  const found = Object.entries(results).filter(([, number]) => number > 0);
  return found.length === 0 ? html`<span class="dim">not called</span>` : found.map(([name, number], at) => html`<span key=${name}
    class=${FAILED.includes(name) ? 'danger' : ''}>${at > 0 && ', '}${count(number)} ${name.replaceAll('_', ' ')}</span>`);
};

const time = (us) => (us === null ? 'longer' : us < 1000 ? `${us} µs` : us < 1e6 ? `${us / 1000} ms` : `${us / 1e6} s`);
const spread = ({ count: number, p50_us: half, p99_us: most }) => (number === 0 ? '–' : `${time(half)}, ${time(most)}`);

export function Plugins() {
  const { data, error, reload } = useLoad((signal) => get('/plugins', signal), []);
  const read = (plugin) => change('POST', address(['plugins', plugin, 'reload']), undefined,
    ({ changed_users: users }) => `Its files are read again; the rights of ${users === null ? 'everybody' : `${count(users)} users`} may have changed.`);
  const isFirst = (one) => data.items.find(({ plugin }) => plugin === one.plugin) === one;
  return html`<p class="actions"><button type="button" onClick=${reload}>Refresh</button></p>
    <${Problem} error=${error} retry=${reload} />
    ${data?.items.length === 0 && html`<${Empty}>No plugin has hooks. A table <code>[[plugins]]</code> of the configuration adds one.</${Empty}>`}
    ${data?.items.length > 0 && html`<${Plain} label="Plugins" rows=${data.items} columns=${[
      { title: 'Hook', cell: (one) => html`<${Name} text=${one.hook} /><div class="dim small"><${Name} text=${one.plugin} /></div>` },
      { title: 'Calls', cell: (one) => html`<${Results} results=${one.results} />${one.paused && html`<div class="danger">not called now: it keeps failing</div>`}` },
      { title: 'Duration', class: 'number', cell: (one) => spread(one.run) },
      { title: 'Wait before it', class: 'wide number', cell: (one) => spread(one.wait) },
      { title: 'Waiting', class: 'wide number', cell: (one) => count(one.waiting + one.in_flight) },
      may('admin') && { title: '', cell: (one) => isFirst(one) && html`<button type="button" class="small" title="Has the plugin read its files again" onClick=${() => read(one.plugin)}>Reload</button>` },
    ].filter(Boolean)} /><p class="dim foot">Counts since the start, or since a reload that replaced the plugins. Durations: half of them, and 99 of 100, took at most so long.</p>`}`;
}
