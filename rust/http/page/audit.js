// The audit log: who changed what.
import { count } from './format.js';
import { html, useState } from './lib.js';
import { usePages } from './pages.js';
import { Dialog, Empty, Facts, Name, Plain, Problem, Time } from './parts.js';

const when = (entry) => html`<${Time} ms=${Date.parse(entry.ts)} />`;
const action = (entry) => (entry.is_damaged ? html`<span class="danger">damaged line</span>` : html`<${Name} text=${entry.action} />`);
const failed = (entry) => /^([45]|failed)/.test(entry.result);

function Entry({ entry, close }) {
  const details = Object.entries(entry.details).map(([name, value]) => [html`<${Name} text=${name} />`, html`<${Name} text=${value} />`]);
  return html`<${Dialog} title="A change" close=${close}><${Facts} rows=${[
      ['Time', when(entry)],
      ['Who', html`<${Name} text=${entry.who} />`],
      ['From', [entry.how, entry.ip].filter(Boolean).join(' ')],
      ['Action', action(entry)],
      ['Target', html`<${Name} text=${entry.target} />`],
      ...details,
      ['Result', entry.result],
      entry.request_id && ['Request', entry.request_id],
      entry.lost > 0 && ['Entries lost before it', count(entry.lost)],
    ]} /><div class="actions"><button type="button" onClick=${close}>Close</button></div></${Dialog}>`;
}

export function Audit() {
  const [query, filter] = useState({ limit: 100 });
  const [state, more, restart] = usePages(['audit'], query);
  const [entry, show] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    const { who, since } = event.currentTarget.elements;
    filter({ limit: 100, who: who.value.trim(), since: since.value });
  };
  return html`<form class="filters" role="search" onSubmit=${submit}>
      <input name="who" type="search" placeholder="part of a name" aria-label="Who" autocomplete="off" spellcheck=${false} />
      <input name="since" type="date" aria-label="Since" />
      <button type="submit">List</button><button type="button" onClick=${restart}>Refresh</button>
    </form>
    <${Problem} error=${state.error} retry=${restart} />
    ${state.items.length > 0 && html`<${Plain} label="Changes" rows=${state.items} columns=${[
      { title: 'Time', cell: when },
      { title: 'Who', cell: (one) => html`<${Name} text=${one.who} />` },
      { title: 'Action', cell: action },
      { title: 'Target', class: 'wide', cell: (one) => html`<${Name} text=${one.target} />` },
      { title: 'Result', cell: (one) => html`<span class=${failed(one) ? 'danger' : ''}><${Name} text=${one.result} /></span>` },
      { title: '', cell: (one) => html`<button type="button" class="small" onClick=${() => show(one)}>Details</button>` },
    ]} />`}
    ${!state.isLoading && !state.error && !state.next && state.items.length === 0 && html`<${Empty}>No changes.</${Empty}>`}
    ${state.next && html`<p class="actions"><button type="button" onClick=${more}>Older</button></p>`}
    ${entry && html`<${Entry} entry=${entry} close=${() => show(null)} />`}`;
}
