// Screen 5: who gets a topic, who holds a filter, all subscriptions.
import { count } from './format.js';
import { html } from './lib.js';
import { usePages } from './pages.js';
import { Empty, Heading, Name, Partial, Problem } from './parts.js';
import { go, refine } from './route.js';
import { Table } from './table.js';

const COLUMNS = [
  { title: 'Client', width: 'minmax(110px, 2fr)', cell: (item) => html`<${Name} text=${item.client_id} empty="unknown: its shard did not answer" />` },
  { title: 'Filter', width: 'minmax(110px, 3fr)', cell: (item) => html`<${Name} text=${item.filter ?? item.group} empty="" />` },
  { title: 'Shared', width: '70px', class: 'wide', cell: (item) => (item.group ? 'yes' : '') },
  { title: 'QoS', width: '44px', class: 'number', cell: (item) => item.qos },
];

const Ask = ({ name, label, value, button }) =>
  html`<form class="filters ask" role="search" onSubmit=${(event) => {
    event.preventDefault();
    const text = event.currentTarget.elements.text.value.trim();
    refine(text ? { [name]: text } : {});
  }}>
    <input name="text" type="search" key=${value} defaultValue=${value} placeholder=${label} aria-label=${label} autocomplete="off" spellcheck=${false} />
    <button type="submit">${button}</button>
  </form>`;

export function Subscriptions({ query }) {
  const { topic, filter } = query;
  const [state, more, restart] = usePages(['subscriptions'], { topic, filter });
  const isDone = !state.isLoading && !state.error;
  const what = query.topic ? 'clients get this topic' : query.filter ? 'subscriptions with this filter' : 'subscriptions read';
  return html`<div class="full">
    <${Heading} title="Subscriptions">
      <span class="dim">${count(state.items.length)} ${what}</span><button type="button" onClick=${restart}>Refresh</button>
    </${Heading}>
    <div class="columns">
      <${Ask} name="topic" value=${query.topic} label="Who gets this topic? For example plant/1/temp" button="Ask" />
      <${Ask} name="filter" value=${query.filter} label="Who holds this filter? For example plant/#" button="Find" />
    </div>
    <${Partial} partial=${state.partial} />
    <${Problem} error=${state.error} retry=${restart} />
    ${isDone && state.items.length === 0
      ? html`<${Empty}>${query.topic ? 'Nobody gets this topic.' : query.filter ? 'Nobody holds this filter.' : 'There are no subscriptions.'}</${Empty}>`
      : html`<${Table} label="Subscriptions" columns=${COLUMNS} items=${state.items} id=${(item) => item.index}
          open=${(item) => item.client_id && go(['clients', item.client_id], { tab: 'subscriptions' })} more=${more} hasMore=${Boolean(state.next)} />`}
    ${query.topic && state.items.some((item) => item.group) && html`<p class="dim">Of the members of a shared subscription, the one is listed that would be chosen now.</p>`}
  </div>`;
}
