// Screen 4: retained messages, live messages, publishing.
import { address, ask, get, may } from './api.js';
import { bytes, count, duration, fromBase64, payload } from './format.js';
import { html, useRef, useState } from './lib.js';
import { Live } from './live.js';
import { usePages } from './pages.js';
import { change, confirm, Dialog, Empty, Facts, Field, Heading, Name, Problem, Tabs } from './parts.js';
import { link, refine } from './route.js';
import { useLoad } from './store.js';
import { Table } from './table.js';
import { Tree } from './tree.js';
import { PayloadView } from './viewer.js';

const COLUMNS = [
  { title: 'Topic', width: 'minmax(140px, 4fr)', cell: (item) => html`<${Name} text=${item.topic} />` },
  { title: 'QoS', width: '44px', class: 'number', cell: (item) => item.qos },
  { title: 'Size', width: '80px', class: 'number', cell: (item) => bytes(item.payload_bytes) },
  { title: 'Expires', width: '110px', class: 'wide', cell: (item) => (item.expires_in_s === null ? 'never' : `in ${duration(item.expires_in_s)}`) },
  { title: 'Content type', width: '130px', class: 'wide', cell: (item) => html`<${Name} text=${item.content_type} empty="" />` },
];

function Message({ topic, close, done }) {
  const { data, error, reload } = useLoad((signal) => get(address(['retained', topic]), signal), [topic]);
  // The payload, and the one that was read before it.
  const read = useRef([]);
  const text = data?.payload_base64;
  if (text !== undefined && text !== read.current[0]?.text) read.current = [{ text, bytes: fromBase64(text) }, read.current[0]];
  const [now, before] = text === undefined ? [] : read.current;
  const shown = now && payload(now.bytes, topic);
  const remove = async () => {
    close();
    if (await change('DELETE', address(['retained', topic]), undefined, 'The retained message is removed.')) done();
  };
  return html`<${Dialog} title="Retained message" close=${close}>
    <p><${Name} text=${topic} /></p>
    <${Problem} error=${error} />
    ${data && html`<${Facts} rows=${[
      ['QoS', data.qos],
      ['Size', `${count(data.payload_bytes)} bytes${shown ? `, ${shown.kind}` : ''}`],
      ['Expires', data.expires_in_s === null ? 'never' : `in ${duration(data.expires_in_s)}`],
      data.publisher && ['Publisher', html`<a href=${link(['clients', data.publisher.client_id])}><${Name} text=${data.publisher.client_id} /></a>, user <${Name} text=${data.publisher.username} />`],
      data.content_type && ['Content type', html`<${Name} text=${data.content_type} />`],
      data.response_topic && ['Response topic', html`<${Name} text=${data.response_topic} />`],
    ]} />${now ? html`<${PayloadView} topic=${topic} data=${now.bytes} before=${before?.bytes} />` : html`<p class="dim">The payload is shown to keys with the scope payload.</p>`}`}
    <div class="actions">
      <a href=${link(['subscriptions'], { topic })} onClick=${close}>Who gets this topic?</a>
      ${may('operate') && data && !topic.startsWith('$') && html`<button type="button" class="danger" onClick=${remove}>Remove</button>`}
      <button type="button" onClick=${reload}>Read again</button>
      <button type="button" onClick=${close}>Close</button>
    </div>
  </${Dialog}>`;
}

/** Removes what a filter matches: first counted, then typed. */
async function removeAll(filter, done) {
  const found = await change('DELETE', address(['retained'], { filter }));
  if (!found) return;
  const text = html`<div><p><${Name} text=${filter} /> matches ${count(found.count)} retained messages, such as:</p>
    <ul>${found.sample.slice(0, 8).map((topic) => html`<li key=${topic}><${Name} text=${topic} /></li>`)}</ul>
    <p class="danger">They are removed for good, and subscribers get an empty message for each.</p></div>`;
  if (!(await confirm({ title: 'Remove retained messages?', text, typed: found.count, action: `Remove ${count(found.count)}` }))) return;
  const path = address(['retained'], { filter, dry_run: false, count: found.count });
  if (await change('DELETE', path, undefined, (answer) => `${count(answer.count)} retained messages are removed.`)) done();
}

function Retained({ query }) {
  const filter = query.filter || undefined;
  const [state, more, restart] = usePages(['retained'], { filter });
  const [topic, open] = useState(null);
  const choose = (event) => {
    event.preventDefault();
    const text = event.currentTarget.elements.filter.value.trim();
    refine(text ? { filter: text } : {});
  };
  return html`<form class="filters" role="search" onSubmit=${choose}>
      <input name="filter" type="search" key=${filter} defaultValue=${filter} placeholder="topic filter, such as plant/# (default: #)" aria-label="Topic filter" />
      <button type="submit">List</button>
      <button type="button" onClick=${restart}>Refresh</button>
      ${may('operate') && html`<button type="button" class="danger" disabled=${!filter || state.items.length === 0} title=${filter ? '' : 'Give a filter first'}
        onClick=${() => removeAll(filter, restart)}>Remove all of these</button>`}
    </form>
    <${Problem} error=${state.error} retry=${restart} />
    ${!state.isLoading && !state.error && state.items.length === 0 ? html`<${Empty}>No retained message${filter ? ' fits this filter' : ''}.</${Empty}>`
      : html`<${Table} label="Retained messages" columns=${COLUMNS} items=${state.items} id=${(item) => item.topic}
          open=${(item) => open(item.topic)} more=${more} hasMore=${Boolean(state.next)} />`}
    ${topic !== null && html`<${Message} topic=${topic} close=${() => open(null)} done=${restart} />`}`;
}

function Publish() {
  const [error, fail] = useState(null);
  const [done, tell] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const { elements } = event.currentTarget;
    const message = { topic: elements.topic.value, payload: elements.payload.value, qos: Number(elements.qos.value), retain: elements.retain.checked };
    fail(null);
    tell(null);
    await ask('POST', '/publish', message).then(tell, fail);
  };
  return html`<form onSubmit=${submit} class="publish">
    <p class="dim">The broker itself publishes: permissions are not checked. To publish with the rights of a user, use Live.</p>
    <div class="form">
      <${Field} label="Topic"><input name="topic" required autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label="QoS"><select name="qos"><option>0</option><option selected>1</option><option>2</option></select></${Field}>
      <label class="check field"><input type="checkbox" name="retain" /> Retained</label>
    </div>
    <${Field} label="Payload"><textarea name="payload" rows="5" spellcheck=${false}></textarea></${Field}>
    <${Problem} error=${error} />
    ${done && html`<p role="status">Published; ${count(done.matched)} ${done.matched === 1 ? 'subscription matches' : 'subscriptions match'}.</p>`}
    <div class="actions"><button type="submit">Publish</button></div>
  </form>`;
}

export function Topics({ query, theme }) {
  const [topic, show] = useState(null);
  const tabs = [['retained', 'Retained'], ['tree', 'Tree'], ['live', 'Live'], may('operate') && ['publish', 'Publish']].filter(Boolean);
  const current = tabs.some(([id]) => id === query.tab) ? query.tab : 'retained';
  return html`<div class=${current === 'publish' ? '' : 'full'}>
    <${Heading} title="Topics" />
    <${Tabs} label="Parts of this screen" tabs=${tabs} current=${current} choose=${(id) => refine(id === 'retained' ? {} : { tab: id })} />
    ${current === 'retained' && html`<${Retained} query=${query} />`}
    ${current === 'tree' && html`<${Tree} show=${show} />`}
    ${current === 'live' && html`<${Live} query=${query} theme=${theme} />`}
    ${current === 'publish' && html`<${Publish} />`}
    ${topic !== null && html`<${Message} topic=${topic} close=${() => show(null)} done=${() => {}} />`}
  </div>`;
}
