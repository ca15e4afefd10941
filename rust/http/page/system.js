// The last screen: listeners, the store, the log, the configuration, keys, the audit log.
import { address, get, may, session } from './api.js';
import { Audit } from './audit.js';
import { figures, log } from './figures.js';
import { bytes, count, duration } from './format.js';
import { html, useEffect, useState } from './lib.js';
import { change, confirm, Dialog, Empty, Facts, Field, Heading, Name, Plain, Problem, Tabs, Time } from './parts.js';
import { Plugins } from './plugins.js';
import { refine } from './route.js';
import { useLoad, useStore } from './store.js';

function Certificate({ held }) {
  const days = Math.floor((held.expires_at_ms - Date.now()) / 86_400_000);
  const left = days < 0 ? 'expired' : days === 1 ? '1 day left' : `${count(days)} days left`;
  return html`<div title=${held.file}><${Name} text=${held.names.join(', ') || held.file} />: <span class=${held.expires_soon ? 'danger' : ''}>${left}</span></div>`;
}

function Listeners() {
  const { data, error, reload } = useLoad((signal) => get('/listeners', signal), []);
  const pause = async (one) => {
    const verb = one.paused ? 'resume' : 'pause';
    const text = html`<p>New connections to <${Name} text=${one.name} /> are closed, and <code>/readyz</code> fails. Its clients stay.</p>`;
    if (!one.paused && !(await confirm({ title: 'Pause this listener?', text, action: 'Pause' }))) return;
    if (await change('POST', address(['listeners', one.name, verb]), undefined, one.paused ? 'The listener accepts connections.' : 'The listener is paused.')) reload();
  };
  return html`<${Problem} error=${error} retry=${reload} />${data && html`<${Plain} label="Listeners" rows=${data.listeners} columns=${[
    { title: 'Name', cell: (one) => html`<${Name} text=${one.name} />` },
    { title: 'Address', cell: (one) => html`<${Name} text=${one.address} />` },
    { title: 'Protocol', cell: (one) => `${one.protocol}${one.tls ? ', TLS' : ''}${one.mtls ? ' with client certificates' : ''}` },
    { title: 'Certificates', class: 'wide', cell: (one) => one.certificates.map((held, at) => html`<${Certificate} key=${at} held=${held} />`) },
    { title: 'Anonymous', class: 'wide', cell: (one) => (one.allow_anonymous ? 'allowed' : 'no') },
    { title: 'Connections', class: 'number', cell: (one) => `${count(one.connections)}${one.max_connections ? ` of ${count(one.max_connections)}` : ''}` },
    { title: 'Refused', class: 'wide', cell: (one) => Object.entries(one.refused).map(([why, times]) => html`<div key=${why}>${count(times)}: ${why.replaceAll('_', ' ')}</div>`) },
    { title: 'State', cell: (one) => (one.paused ? html`<span class="danger">paused</span>` : 'open') },
    may('admin') && { title: '', cell: (one) => html`<button type="button" class="small" onClick=${() => pause(one)}>${one.paused ? 'Resume' : 'Pause'}</button>` },
  ].filter(Boolean)} />`}`;
}

function Log() {
  const lines = useStore(log);
  if (lines.length === 0) return html`<${Empty}>No line since the start of the broker.</${Empty}>`;
  return html`<${Plain} label="Log" rows=${lines} columns=${[
    { title: 'Time', cell: (one) => html`<${Time} ms=${one.ts_ms} />` },
    { title: 'Level', cell: (one) => html`<span class=${one.level === 'error' ? 'danger' : one.level === 'info' ? 'dim' : ''}>${one.level}</span>` },
    { title: 'Line', cell: (one) => html`<${Name} text=${one.text} />${one.suppressed > 0 && html` <span class="dim">and ${count(one.suppressed)} similar ones</span>`}` },
  ]} /><p class="dim foot">The last lines of the broker itself. Lines of plugins are in the log file.</p>`;
}

function Backup({ close, done }) {
  const submit = async (event) => {
    event.preventDefault();
    const to = event.currentTarget.elements.to.value;
    close();
    if (await change('POST', '/store/backup', { to }, 'The backup has begun.')) done();
  };
  return html`<${Dialog} title="Back up the data folder" close=${close}><form onSubmit=${submit}>
    <${Field} label="To" hint="A new or empty folder on the broker’s machine, as an absolute path."><input name="to" required placeholder="/backup/today" autocomplete="off" spellcheck=${false} /></${Field}>
    <div class="actions"><button type="button" onClick=${close}>Cancel</button><button type="submit">Back up</button></div>
  </form></${Dialog}>`;
}

/** How far a backup is. */
function Copied({ job }) {
  if (job.state !== 'running' || job.total === null) return bytes(job.done);
  const rest = job.eta_s === null ? '' : `, ${bytes(job.rate)}/s, ${duration(job.eta_s)} left`;
  return html`<progress aria-label="Copied" value=${job.done} max=${job.total} /> ${bytes(job.done)} of ${bytes(job.total)}${rest}`;
}

const JOBS = [
  { title: 'Job', class: 'number', cell: (job) => job.id },
  { title: 'To', cell: (job) => html`<${Name} text=${job.target} />` },
  { title: 'State', cell: (job) => html`<span class=${job.state === 'failed' ? 'danger' : ''}>${job.state}${job.error ? `: ${job.error}` : ''}</span>` },
  { title: 'Copied', class: 'number', cell: (job) => html`<${Copied} job=${job} />` },
  { title: 'Begun', cell: (job) => html`<${Time} ms=${job.started_ms} />` },
];

/** Reads a running job again at each event of the broker. */
function useJobs() {
  const loaded = useLoad((signal) => get('/jobs', signal), []);
  const isRunning = loaded.data?.items.some((job) => job.state === 'running');
  useEffect(() => (isRunning ? figures.listen(() => loaded.reload()) : undefined), [isRunning]);
  return loaded;
}

/** Units at the end of names of figures, and how their values are written. */
const UNITS = [[/_us$/, (value) => `${(value / 1000).toFixed(1)} ms`], [/_s$/, duration], [/_percent$/, (value) => `${value} %`]];

/** Name and value of a figure of the store, for people. */
function figure([name, value]) {
  const [unit, write] = UNITS.find(([unit]) => unit.test(name)) ?? [/$/, name.includes('bytes') ? bytes : count];
  return [name.replace(unit, '').replaceAll('_', ' '), write(value)];
}

function Store() {
  const { data, error, reload } = useLoad((signal) => get('/store', signal), []);
  const jobs = useJobs();
  const [isOpen, open] = useState(false);
  if (data && !data.enabled) return html`<${Empty}>The broker has no data folder: everything is in memory, and lost when it ends.</${Empty}>`;
  const items = [...(jobs.data?.items ?? [])].reverse();
  return html`<${Problem} error=${error ?? jobs.error} retry=${reload} />
    ${data && html`<p class="actions"><span>Disk: ${{ none: 'enough room', soft: 'nearly full', hard: 'full' }[data.pressure]}</span>
      <button type="button" onClick=${reload}>Refresh</button>
      ${may('admin') && html`<button type="button" onClick=${() => open(true)}>Back up</button>`}</p>
      ${items.length > 0 && html`<section><h2>Backups</h2><${Plain} label="Backups" rows=${items} columns=${JOBS} /></section>`}
      <${Facts} rows=${Object.entries(data.figures).filter(([name]) => name !== 'pressure').map(figure)} />`}
    ${isOpen && html`<${Backup} close=${() => open(false)} done=${jobs.reload} />`}`;
}

const SETTINGS = [
  { title: 'Key', cell: (one) => html`<${Name} text=${one.key} />` },
  { title: 'Value', cell: (one) => html`<${Name} text=${JSON.stringify(one.value)} />` },
  { title: 'Source', class: 'wide', cell: (one) => html`<span class=${one.source === 'default' ? 'dim' : ''}><${Name} text=${one.source} /></span>` },
];

const Lines = ({ title, list, kind }) => (list.length ? html`<div class=${kind}><strong>${title}</strong>${list.map((line) => html`<div key=${line}><${Name} text=${line} /></div>`)}</div>` : null);

const placed = ({ file, line, column, text }) => [file, line, column].filter((part) => part !== null).join(':') + (file === null ? text : `: ${text}`);

function Configuration() {
  const { data, error, reload } = useLoad((signal) => get('/config', signal), []);
  const [text, filter] = useState('');
  const [isAll, all] = useState(false);
  const [outcome, tell] = useState(null);
  const check = async () => {
    const found = await change('POST', '/config/check', {});
    if (found) tell(html`<${Lines} title="Errors" kind="problem" list=${found.errors.map(placed)} /><${Lines} title="Warnings" kind="note" list=${found.warnings} />
      ${found.errors.length === 0 && html`<p role="status">The configuration can be loaded. ${
        found.changed.length ? `A reload changes: ${found.changed.join(', ')}.` : 'A reload changes nothing.'}${
        found.needs_restart.length ? ` After a restart: ${found.needs_restart.join(', ')}.` : ''}</p>`}`);
  };
  const load = async () => {
    if (!(await confirm({ title: 'Reload the configuration?', text: html`<p>The broker reads its configuration again. If anything in it is wrong, nothing changes.</p>`, action: 'Reload' }))) return;
    const done = await change('POST', '/reload');
    if (!done) return;
    tell(html`<p role="status">${done.changed.length ? `In force: ${done.changed.join(', ')}.` : 'Nothing has changed.'}
      ${done.needs_restart.length > 0 && ` After a restart: ${done.needs_restart.join(', ')}.`}</p>`);
    reload();
  };
  const items = data?.items.filter((one) => (isAll || one.source !== 'default') && one.key.includes(text)) ?? [];
  return html`<p class="actions"><input type="search" placeholder="part of a key" aria-label="Part of a key" onInput=${(event) => filter(event.currentTarget.value)} />
      <label class="check"><input type="checkbox" checked=${isAll} onChange=${(event) => all(event.currentTarget.checked)} /> defaults, too</label>
      <button type="button" onClick=${check}>Check</button><button type="button" onClick=${load}>Reload</button></p>
    <${Problem} error=${error} retry=${reload} />${outcome}
    ${data && html`<${Plain} label="Configuration" rows=${items} columns=${SETTINGS} />`}`;
}

const SCOPES = ['view', 'payload', 'operate', 'admin', 'rows', 'publish'];

function NewKey({ close, done }) {
  const [secret, show] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const { elements } = event.currentTarget;
    const key = { name: elements.name.value, scopes: SCOPES.filter((scope) => elements[`scope-${scope}`].checked) };
    if (elements.expires.value) key.expires = elements.expires.value;
    const made = await change('POST', '/keys', key);
    if (made) show(made.secret);
    if (made) done();
  };
  if (secret) return html`<${Dialog} title="The new key" close=${close}><p>This is the only time that the secret is shown:</p><pre class="payload">${secret}</pre>
    <div class="actions"><button type="button" onClick=${close}>Close</button></div></${Dialog}>`;
  return html`<${Dialog} title="Make a key" close=${close}><form onSubmit=${submit}>
    <${Field} label="Name"><input name="name" required autocomplete="off" /></${Field}>
    <fieldset><legend>Scopes</legend>${SCOPES.map((scope) => html`<label class="check" key=${scope}><input type="checkbox" name=${`scope-${scope}`} defaultChecked=${scope === 'view'} /> ${scope}</label>`)}</fieldset>
    <${Field} label="Expires"><input name="expires" type="date" /></${Field}>
    <div class="actions"><button type="button" onClick=${close}>Cancel</button><button type="submit">Make</button></div>
  </form></${Dialog}>`;
}

function Keys() {
  const { data, error, reload } = useLoad((signal) => get('/keys', signal), []);
  const [isOpen, open] = useState(false);
  const own = useStore(session)?.name;
  const revoke = async (key) => {
    const text = html`<p><${Name} text=${key.name} /> is refused from now on.${own === `key ${JSON.stringify(key.name)}` && ' It is the key that you are logged in with.'}</p>`;
    if (!(await confirm({ title: 'Revoke this key?', text, action: 'Revoke' }))) return;
    if (await change('DELETE', address(['keys', key.name]), undefined, 'The key is revoked.')) reload();
  };
  return html`<p class="actions"><button type="button" onClick=${() => open(true)}>Make a key</button><button type="button" onClick=${reload}>Refresh</button></p>
    <${Problem} error=${error} retry=${reload} />
    ${data && html`<${Plain} label="Keys" rows=${data.items} columns=${[
      { title: 'Name', cell: (key) => html`<${Name} text=${key.name} />` },
      { title: 'Scopes', cell: (key) => key.scopes.join(', ') },
      { title: 'Streams', class: 'wide', cell: (key) => (key.streams ? html`<${Name} text=${key.streams.join(', ')} />` : 'all') },
      { title: 'Expires', cell: (key) => key.expires ?? 'never' },
      { title: '', cell: (key) => html`<button type="button" class="small" onClick=${() => revoke(key)}>Revoke</button>` },
    ]} />`}
    ${isOpen && html`<${NewKey} close=${() => open(false)} done=${reload} />`}`;
}

const SHOWN = { listeners: Listeners, plugins: Plugins, store: Store, log: Log, configuration: Configuration, keys: Keys, audit: Audit };

export function System({ query }) {
  const own = [['configuration', 'Configuration'], ['keys', 'Keys'], ['audit', 'Changes']];
  const tabs = [['listeners', 'Listeners'], ['plugins', 'Plugins'], ['store', 'Store'], ['log', 'Log'], ...(may('admin') ? own : [])];
  const current = tabs.some(([id]) => id === query.tab) ? query.tab : 'listeners';
  const licences = import.meta.resolve('./vendor/LICENSES.txt');
  return html`<div><${Heading} title="System" />
    <${Tabs} label="Parts of this screen" tabs=${tabs} current=${current} choose=${(id) => refine(id === 'listeners' ? {} : { tab: id })} />
    <${SHOWN[current]} key=${current} />
    <p class="dim small foot"><a href=${licences} target="_blank" rel="noreferrer">Licences of this page</a></p></div>`;
}
