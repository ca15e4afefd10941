// Screen 8: what would become of a message, and what became of those before.
import { ask } from './api.js';
import { EventList } from './happened.js';
import { count, visible } from './format.js';
import { html, useState } from './lib.js';
import { Empty, Field, Heading, Name, Partial, Plain, Problem, Tabs } from './parts.js';
import { link, refine } from './route.js';
import { Steps, Verdict } from './steps.js';

const RECEIVERS = [
  { title: 'Client', cell: (one) => (one.client_id ? html`<a href=${link(['clients', one.client_id])}><${Name} text=${one.client_id} /></a>` : '–') },
  { title: 'Verdict', cell: (one) => html`<${Verdict} text=${one.verdict} />${one.detail && html`<div class="dim">${visible(one.detail)}</div>`}` },
  { title: 'Group', class: 'wide', cell: (one) => html`<${Name} text=${one.group} empty="" />` },
  { title: 'QoS', class: 'number', cell: (one) => one.qos },
];

function question(elements) {
  const asked = { topic: elements.topic.value, qos: Number(elements.qos.value), bytes: Number(elements.bytes.value), retain: elements.retain.checked, limit: 1000 };
  if (elements.from.value) asked.from = elements.from.value;
  if (elements.to.value) asked.to = elements.to.value;
  return asked;
}

function Before({ query }) {
  const [answer, set] = useState(null);
  const [error, fail] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    fail(null);
    await ask('POST', '/explain/delivery', question(event.currentTarget.elements)).then(set, (problem) => { set(null); fail(problem); });
  };
  return html`<p class="dim">Nothing is sent, and no plugin is asked.</p>
    <form onSubmit=${submit} class="form">
      <${Field} label="Topic"><input name="topic" required defaultValue=${query.topic} autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label="From"><input name="from" placeholder="the broker itself" autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label="To"><input name="to" placeholder="everybody" autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label="QoS"><select name="qos"><option>0</option><option selected>1</option><option>2</option></select></${Field}>
      <${Field} label="Bytes of the payload"><input name="bytes" type="number" min="0" max="1048576" defaultValue="100" /></${Field}>
      <label class="check field"><input type="checkbox" name="retain" /> Retained</label>
      <div class="actions"><button type="submit">Explain</button></div>
    </form>
    <${Problem} error=${error} />
    ${answer && html`<${Steps} verdict=${answer.verdict} steps=${answer.steps} />
      <h2>${count(answer.receivers.items.length)}${answer.receivers.next ? ' or more' : ''} receivers</h2>
      <${Partial} partial=${answer.receivers.partial} />
      ${answer.receivers.items.length === 0 ? html`<${Empty}>Nobody.</${Empty}>` : html`<${Plain} label="Receivers" rows=${answer.receivers.items} columns=${RECEIVERS} />`}`}`;
}

function After({ query }) {
  const choose = (event) => {
    event.preventDefault();
    const { client, topic } = event.currentTarget.elements;
    const found = { tab: 'after', client: client.value.trim(), topic: topic.value.trim() };
    refine(Object.fromEntries(Object.entries(found).filter(([, value]) => value)));
  };
  const asked = Object.fromEntries(['client', 'topic'].filter((name) => query[name]).map((name) => [name, query[name]]));
  return html`<p class="dim">Connections, subscriptions, denials and lost messages. QoS 0 messages for clients that are not connected are not among them.</p>
    <form onSubmit=${choose} class="filters" role="search">
      <input name="client" type="search" key=${`c${query.client}`} defaultValue=${query.client} placeholder="client" aria-label="Client" />
      <input name="topic" type="search" key=${`t${query.topic}`} defaultValue=${query.topic} placeholder="topic" aria-label="Topic" />
      <button type="submit">List</button>
    </form>
    <${EventList} query=${asked} label="Recent events" />`;
}

const TABS = [['before', 'What would happen'], ['after', 'What happened']];

export function Explain({ query }) {
  const current = query.tab === 'after' ? 'after' : 'before';
  return html`<div><${Heading} title="Explain" />
    <${Tabs} label="Parts of this screen" tabs=${TABS} current=${current} choose=${(id) => refine(id === 'before' ? {} : { tab: id })} />
    ${current === 'before' ? html`<${Before} query=${query} />` : html`<${After} query=${query} />`}</div>`;
}
