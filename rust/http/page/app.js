// The page: login, top bar, navigation, and the screen that the address names.
import { session, farewell, logOut, resume } from './api.js';
import { connection, figures, start, warnings } from './figures.js';
import { html, render, useEffect } from './lib.js';
import { Login } from './login.js';
import { Dialog, Messages, Question } from './parts.js';
import { go, path, search } from './route.js';
import { Store, useStore } from './store.js';
import { duration } from './format.js';
import { Overview } from './overview.js';
import { Clients } from './clients.js';
import { Client } from './client.js';
import { Topics } from './topics.js';
import { Subscriptions } from './subscriptions.js';
import { Flow } from './flow.js';
import { Access } from './access.js';
import { Explain } from './explain.js';
import { Traces } from './traces.js';
import { System } from './system.js';

/** `[path, title, key after g, screen]` in the order of the navigation. */
const SCREENS = [
  ['', 'Overview', 'o', Overview],
  ['clients', 'Clients', 'c', Clients],
  ['topics', 'Topics', 't', Topics],
  ['subscriptions', 'Subscriptions', 'u', Subscriptions],
  ['flow', 'Streams', 's', Flow],
  ['access', 'Access', 'a', Access],
  ['explain', 'Explain', 'e', Explain],
  ['traces', 'Traces', 'r', Traces],
  ['system', 'System', 'y', System],
];

const THEMES = ['auto', 'light', 'dark'];
const theme = new Store(localStorage.getItem('mqttcore.theme') ?? 'auto');
const help = new Store(false);

function show(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem('mqttcore.theme', name);
}
theme.listen(show);
show(theme.value);

function Screen({ route, theme }) {
  const [first = '', second] = route.parts;
  if (first === 'clients' && second !== undefined) return html`<${Client} key=${second} id=${second} tab=${route.query.tab} />`;
  const found = SCREENS.find(([name]) => name === first);
  if (!found) return html`<h1>There is no such screen</h1><p><a href="#/">Overview</a></p>`;
  return html`<${found[3]} key=${first} query=${route.query} theme=${theme} />`;
}

const STATES = { live: 'Figures are live', stale: 'No figures for 5 seconds', lost: 'The broker does not answer' };

function Bar() {
  const state = useStore(connection);
  const values = useStore(figures);
  const shown = useStore(theme);
  const caller = useStore(session);
  const next = THEMES[(THEMES.indexOf(shown) + 1) % THEMES.length];
  return html`<div class="bar">
    <a class="brand" href="#/">mqttcore</a>
    <span class=${`state ${state}`} role="status" title=${STATES[state]}><i></i><span class="wide">${state === 'live' ? `up ${duration(values.uptime_s)}` : STATES[state]}</span></span>
    <form role="search" onSubmit=${(event) => { event.preventDefault(); search(event.currentTarget.elements.q.value.trim()); }}>
      <input id="search" name="q" type="search" placeholder="client, topic or filter" aria-label="Search for a client, topic or filter" autocomplete="off" /><kbd class="wide">/</kbd>
    </form>
    <button type="button" class="quiet" onClick=${() => theme.set(next)} title=${`Colours: ${shown}; change to ${next}`} aria-label=${`Colours: ${shown}`}>${{ auto: '◐', light: '○', dark: '●' }[shown]}</button>
    <button type="button" class="quiet" onClick=${() => help.set(true)} aria-label="Keys">?</button>
    <button type="button" class="quiet" onClick=${() => logOut()} title=${`${caller.name}: ${caller.scopes.join(', ')}`}>Log out</button>
  </div>`;
}

function Navigation({ route }) {
  const current = route.parts[0] ?? '';
  const count = useStore(warnings).length;
  useEffect(() => document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' }), [current]);
  return html`<nav aria-label="Screens">${SCREENS.map(
    ([name, title]) => html`<a key=${name} href=${`#/${name}`} aria-current=${name === current ? 'page' : undefined}>${title}${
      name === '' && count > 0 ? html`<span class="badge" title="warnings">${count}</span>` : null}</a>`,
  )}</nav>`;
}

const Help = () => html`<${Dialog} title="Keys" close=${() => help.set(false)}>
  <dl class="facts">
    <div><dt><kbd>/</kbd></dt><dd>search</dd></div>
    ${SCREENS.map(([, title, key]) => html`<div key=${key}><dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${title}</dd></div>`)}
    <div><dt><kbd>↑</kbd> <kbd>↓</kbd> <kbd>Enter</kbd></dt><dd>move through a list, open</dd></div>
    <div><dt><kbd>Space</kbd></dt><dd>select a client in its list; Shift selects all from the one before</dd></div>
    <div><dt><kbd>?</kbd></dt><dd>these keys</dd></div>
  </dl>
  <div class="actions"><button type="button" onClick=${() => help.set(false)}>Close</button></div>
</${Dialog}>`;

let prefix = 0;

function press(event) {
  const { target } = event;
  const types = target.matches?.('input, textarea, select');
  if (types && event.key === 'Escape') target.blur();
  if (types || event.ctrlKey || event.metaKey || event.altKey || !session.value || document.querySelector('dialog[open]')) return;
  const isAfterG = Date.now() - prefix < 1500;
  prefix = event.key === 'g' && !isAfterG ? Date.now() : 0;
  const screen = isAfterG && SCREENS.find(([, , key]) => key === event.key);
  if (screen) go([screen[0]]);
  else if (event.key === '/') document.getElementById('search').focus();
  else if (event.key === '?') help.set(true);
  else return;
  event.preventDefault();
}

function App() {
  const caller = useStore(session);
  const route = useStore(path);
  const shown = useStore(theme);
  const isHelping = useStore(help);
  const why = useStore(farewell);
  if (!caller) return html`<${Login} why=${why} /><${Messages} />`;
  return html`<${Bar} />
    <div class="frame"><${Navigation} route=${route} /><main id="main"><${Screen} route=${route} theme=${shown} /></main></div>
    ${isHelping && html`<${Help} />`}<${Question} /><${Messages} />`;
}

document.addEventListener('keydown', press);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme.set(theme.value));
const isKnown = document.documentElement.dataset.login === 'known';
await resume(isKnown).catch((error) => farewell.set(error.status === 401 ? 'The login has ended.' : error.message));
start();
render(html`<${App} />`, document.body);
