// Screen 7: what a client may do, denials, bans.
import { address, ask, get, may } from './api.js';
import { BanForm } from './ban.js';
import { EventList } from './happened.js';
import { count, visible } from './format.js';
import { html, useEffect, useState } from './lib.js';
import { change, confirm, Empty, Field, Heading, Name, Plain, Problem, Tabs, Time } from './parts.js';
import { link, refine } from './route.js';
import { Steps } from './steps.js';
import { Store, useLoad, useStore } from './store.js';

const DENIALS = ['denied', 'auth_failed', 'publish_refused'];
const KINDS = { client_id: 'client', client_id_of_user: 'client, for one user', client_id_regex: 'clients, by expression', username: 'user', ip: 'address or network' };

function Ask({ query }) {
  const [answer, set] = useState(null);
  const [error, fail] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const { client, action, topic } = event.currentTarget.elements;
    fail(null);
    const question = { client: client.value, action: action.value, topic: topic.value };
    await ask('POST', '/explain/access', question).then(set, (problem) => { set(null); fail(problem); });
  };
  return html`<form onSubmit=${submit} class="form">
      <${Field} label="Client"><input name="client" required defaultValue=${query.client} autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label="May it"><select name="action"><option value="publish">publish to</option><option value="subscribe">subscribe to</option><option value="receive">receive from</option></select></${Field}>
      <${Field} label="Topic or filter"><input name="topic" required autocomplete="off" spellcheck=${false} /></${Field}>
      <div class="actions"><button type="submit">Ask</button></div>
    </form>
    <${Problem} error=${error} />
    ${answer && html`<${Steps} verdict=${answer.verdict} steps=${answer.steps} />`}`;
}

/** The rule that denies an event now: the first step that is not ok. A denial does not say whether it was of a PUBLISH or a SUBSCRIBE. */
async function ruleOf({ client_id: client, topic }) {
  for (const action of /[+#]|^\$share\//.test(topic) ? ['subscribe'] : ['publish', 'subscribe']) {
    const { verdict, steps } = await ask('POST', '/explain/access', { client, action, topic });
    if (verdict !== 'ok') return steps.find((one) => one.verdict !== 'ok') ?? { step: verdict };
  }
  return { step: 'allowed now' };
}

/** Rules that are asked for without a click, while the screen is open. */
const AUTOMATIC = 20;
/** What is known by client and topic: `{rule}`, `{error}`, or nothing yet. */
const rules = new Store(new Map());

function find(key, item) {
  const put = (known) => rules.set(new Map(rules.value).set(key, known));
  put({});
  ruleOf(item).then((rule) => put({ rule }), (error) => put({ error }));
}

/** The rule of a denial, with its file and line. */
function Rule({ item }) {
  const key = JSON.stringify([item.client_id, item.topic]);
  const known = useStore(rules).get(key);
  const isDenied = item.event === 'denied' && item.topic;
  useEffect(() => {
    if (isDenied && !rules.value.has(key) && rules.value.size < AUTOMATIC) find(key, item);
  }, [key]);
  if (!isDenied) return '';
  if (!known) return html`<button type="button" class="small" onClick=${() => find(key, item)}>Which rule</button>`;
  if (known.error) return html`<span class="dim">${known.error.message}</span>`;
  if (!known.rule) return '…';
  const { by, step, place } = known.rule;
  return html`<${Name} text=${by ?? step} />${place && html`<div><code>${visible(place)}</code></div>`}`;
}

const RULE = [{ title: 'Rule now', cell: (item) => html`<${Rule} item=${item} />` }];

function Denials() {
  useEffect(() => () => rules.set(new Map()), []);
  return html`<${EventList} query=${{ events: DENIALS.join(',') }} only=${DENIALS} label="Denials" more=${RULE} />`;
}

function Bans() {
  const { data, error, reload } = useLoad((signal) => get('/bans?limit=1000', signal), []);
  const [isAdding, add] = useState(false);
  const lift = async (ban) => {
    if (await change('DELETE', address(['bans', ban.id]), undefined, 'The ban is lifted.')) reload();
  };
  return html`<p class="actions">${may('operate') && html`<button type="button" onClick=${() => add(true)}>Ban clients</button>`}
      <button type="button" onClick=${reload}>Refresh</button></p>
    <${Problem} error=${error} retry=${reload} />
    ${data?.items.length === 0 && html`<${Empty}>Nobody is banned.</${Empty}>`}
    ${data?.items.length > 0 && html`<${Plain} label="Bans" rows=${data.items} columns=${[
      { title: 'What', cell: (ban) => KINDS[ban.kind] },
      { title: 'Value', cell: (ban) => html`<${Name} text=${ban.value} />${ban.kind === 'client_id_of_user' && html` (<${Name} text=${ban.username} empty="without user name" />)`}` },
      { title: 'Until', cell: (ban) => (ban.until_ms ? html`<${Time} ms=${ban.until_ms} />` : 'it is lifted') },
      { title: 'Reason', cell: (ban) => html`<${Name} text=${ban.why} empty="" />${ban.by && html`<div class="dim small">by ${visible(ban.by)}</div>`}` },
      may('operate') && { title: '', cell: (ban) => html`<button type="button" class="small" onClick=${() => lift(ban)}>Lift</button>` },
    ].filter(Boolean)} />`}
    ${data?.next && html`<p class="dim">The first 1,000.</p>`}
    ${isAdding && html`<${BanForm} close=${() => add(false)} done=${reload} />`}`;
}

/** Has the plugins asked again about rights. */
function Renew() {
  const submit = async (event) => {
    event.preventDefault();
    const { whose, value } = event.currentTarget.elements;
    const isAll = whose.value === 'all';
    const text = 'If no plugin has a hook for rights, all clients are disconnected.';
    if (isAll && !(await confirm({ title: 'Ask again about all clients?', text, action: 'Ask about all' }))) return;
    const body = isAll ? { all: true } : { [whose.value]: value.value };
    await change('POST', '/access/invalidate', body, ({ connected }) => `The rights of ${connected} connected clients are asked for again.`);
  };
  return html`<form onSubmit=${submit}>
    <p class="dim">Drops what plugins have answered before, and asks them again. Without a hook for rights, clients are disconnected and log in again.</p>
    <div class="form">
      <${Field} label="Whose rights"><select name="whose"><option value="client_id">one client</option><option value="username">a user</option><option value="plugin">clients of a plugin</option><option value="all">all clients</option></select></${Field}>
      <${Field} label="Identifier or name"><input name="value" autocomplete="off" spellcheck=${false} /></${Field}>
      <div class="actions"><button type="submit">Ask again</button></div>
    </div></form>`;
}

const CHANGES = [
  { title: 'Client', cell: (one) => html`<a href=${link(['clients', one.client_id])}><${Name} text=${one.client_id} /></a>` },
  { title: 'User', class: 'wide', cell: (one) => html`<${Name} text=${one.username} empty="none" />` },
  { title: 'May', cell: (one) => (one.filter === null ? 'publish' : html`receive by <${Name} text=${one.filter} />`) },
  { title: 'Now', cell: (one) => html`<${Name} text=${one.now} />` },
  { title: 'Then', cell: (one) => html`<${Name} text=${one.then} />` },
];

/** Compares another ACL file with the one in use. */
function Try() {
  const [text, write] = useState('');
  const [found, set] = useState(null);
  const [error, fail] = useState(null);
  const [isAsking, wait] = useState(false);
  const choose = async (event) => { write(await event.currentTarget.files[0]?.text() ?? ''); set(null); };
  const submit = async (event) => {
    event.preventDefault();
    fail(null);
    set(null);
    wait(true);
    await ask('POST', '/access/dry-run', { acl_file: text }).then(set, fail);
    wait(false);
  };
  return html`<form onSubmit=${submit}>
      <p class="dim">Compares an ACL file with the one in use, for all sessions. Nothing changes.</p>
      <${Field} label="New ACL file"><input type="file" onChange=${choose} /></${Field}>
      <${Field} label="Its text"><textarea name="acl" rows="8" required spellcheck=${false} value=${text} onInput=${(event) => write(event.currentTarget.value)}></textarea></${Field}>
      <div class="actions"><button type="submit" disabled=${isAsking}>Compare</button></div>
    </form>
    <${Problem} error=${error} />
    ${found && html`${found.warnings.map((line) => html`<div class="note" key=${line}>${line}</div>`)}
      <p role="status">${count(found.changed)} of ${count(found.clients)} clients have other rules${found.changed > 0 && found.changes.length === 0 && !found.has_more && found.partial.length === 0 && ', which allow the same'}.
        ${found.has_more && ' Only a part was compared: there may be more changes.'}${found.partial.length > 0 && ' Some shards did not answer in time: clients or subscriptions are missing.'}</p>
      ${found.changes.length > 0 && html`<${Plain} label="Changes" columns=${CHANGES} rows=${found.changes} />`}`}`;
}

const TABS = [['ask', 'Ask'], ['denials', 'Denials'], ['bans', 'Bans'], ['try', 'Try an ACL file'], ['renew', 'Renew rights']];
const SHOWN = { ask: Ask, denials: Denials, bans: Bans, try: Try, renew: Renew };

export function Access({ query }) {
  const tabs = TABS.filter(([id]) => !['try', 'renew'].includes(id) || may('admin'));
  const current = tabs.some(([id]) => id === query.tab) ? query.tab : 'ask';
  return html`<div><${Heading} title="Access" />
    <${Tabs} label="Parts of this screen" tabs=${tabs} current=${current} choose=${(id) => refine(id === 'ask' ? {} : { tab: id })} />
    <${SHOWN[current]} query=${query} /></div>`;
}
