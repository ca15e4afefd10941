// Screen 5: who gets a topic, who holds a filter, all subscriptions.
import { count } from './format.js';
import { html } from './lib.js';
import { usePages } from './pages.js';
import { Dot, Empty, Heading, Name, Partial, Problem } from './parts.js';
import { go, link, refine } from './route.js';
import { Table } from './table.js';

const MEMBER = [
  { title: 'State', width: '110px', cell: ({ member }) => member && html`<${Dot} on=${member.connected} label=${member.connected ? 'connected' : 'offline'} /> ${member.connected ? 'connected' : 'offline'}` },
  { title: 'Queue', width: '70px', class: 'number', cell: ({ member }) => member && count(member.queued) },
  { title: 'In flight', width: '70px', class: 'number wide', cell: ({ member }) => member && count(member.inflight) },
];

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
  const columns = filter?.startsWith('$share/') ? [...COLUMNS, ...MEMBER] : COLUMNS;
  const isDone = !state.isLoading && !state.error;
  const what = query.topic ? (state.items.length === 1 ? 'client gets this topic' : 'clients get this topic') : query.filter ? 'subscriptions with this filter' : 'subscriptions read';
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
      : html`<${Table} label="Subscriptions" columns=${columns} items=${state.items} id=${(item) => item.index}
          open=${(item) => item.client_id && go(['clients', item.client_id], { tab: 'subscriptions' })} more=${more} hasMore=${Boolean(state.next)} />`}
    ${query.topic && state.items.some((item) => item.group) && html`<p class="dim">Of the members of a shared subscription, the one is listed that would be chosen now: ${[...new Set(state.items.map((item) => item.group).filter(Boolean))].slice(0, 20).map((group, at) => html`${at > 0 && ', '}<a
      key=${group} href=${link(['subscriptions'], { filter: group })}>members of <${Name} text=${group} /></a>`)}.</p>`}
  </div>`;
}
