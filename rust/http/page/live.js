// Live messages: an MQTT client of its own, with the rights of the user who logs in to MQTT.
import { get } from './api.js';
import { count, payload } from './format.js';
import { html, useEffect, useMemo, useRef, useState } from './lib.js';
import { MqttClient } from './mqtt.js';
import { Dialog, Empty, Facts, Field, Name, Problem, Time } from './parts.js';
import { useLoad } from './store.js';
import { Table } from './table.js';
import { noteBirth } from './sparkplug.js';
import { ValueChart } from './values.js';
import { PayloadView } from './viewer.js';

const KEPT = 1000;

/** The beginning of a payload, in a line; made once it is shown. */
function line(item) {
  const { payload: data, topic } = item;
  item.line ??= payload(data.length > 2000 ? data.subarray(0, 200) : data, topic).text.slice(0, 200).replace(/\s+/g, ' ');
  return item.line;
}

const COLUMNS = [
  { title: 'Time', width: '76px', cell: (item) => html`<${Time} ms=${item.ms} />` },
  { title: 'Topic', width: 'minmax(110px, 2fr)', cell: (item) => html`<${Name} text=${item.topic} />` },
  { title: '', width: '64px', class: 'wide', cell: (item) => (item.retain ? 'retained' : '') },
  { title: 'Payload', width: 'minmax(110px, 3fr)', cell: (item) => html`<span class="name">${line(item)}</span>` },
];

/** The address of a listener, on the host that served the page. */
const place = (listener) => `${listener.tls ? 'wss' : 'ws'}://${location.hostname}:${listener.port}${listener.websocket_path}`;

const clientId = () => `page-${Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;

/** Messages that have come since the page was loaded. */
let number = 0;

/** Messages, the newest first, that are shown at most five times a second. */
function useMessages() {
  const [shown, show] = useState([]);
  const kept = useRef([]);
  const timer = useRef(0);
  // Those since the last time, the oldest first.
  const added = useRef([]);
  const add = (message) => {
    noteBirth(message.topic, message.payload);
    message.ms = Date.now();
    message.id = number += 1;
    added.current.push(message);
    if (added.current.length >= 2 * KEPT) added.current.splice(0, KEPT);
    timer.current ||= setTimeout(() => {
      timer.current = 0;
      kept.current = added.current.reverse().concat(kept.current).slice(0, KEPT);
      added.current = [];
      show(kept.current);
    }, 200);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  const clear = () => {
    kept.current = [];
    added.current = [];
    show([]);
  };
  return [shown, add, clear];
}

function Message({ message, messages, theme, close }) {
  const shown = useMemo(() => payload(message.payload, message.topic), [message]);
  const before = messages.find((one) => one.id < message.id && one.topic === message.topic);
  const { contentType, responseTopic, expiry, user } = message.properties;
  return html`<${Dialog} title="Message" close=${close}>
    <p><${Name} text=${message.topic} /></p>
    <${Facts} rows=${[
      ['Received', html`<${Time} ms=${message.ms} />`],
      ['Retained', message.retain ? 'yes' : 'no'],
      ['Size', `${count(message.payload.length)} bytes, ${shown.kind}`],
      contentType && ['Content type', html`<${Name} text=${contentType} />`],
      responseTopic && ['Response topic', html`<${Name} text=${responseTopic} />`],
      expiry !== undefined && ['Expires in', `${expiry} s`],
      ...user.map(([name, value]) => [html`<${Name} text=${name} />`, html`<${Name} text=${value} />`]),
    ]} />
    <${PayloadView} topic=${message.topic} data=${message.payload} before=${before?.payload} />
    <${ValueChart} message=${message} messages=${messages} theme=${theme} />
    <div class="actions"><button type="button" onClick=${close}>Close</button></div>
  </${Dialog}>`;
}

const NoListener = () => html`<${Empty}>No listener has <code>transport = "websocket"</code>. Live messages come over one:</${Empty}>
  <pre>${`[[listeners]]\naddress = "127.0.0.1:8083"\ntransport = "websocket"\norigins = ["${location.origin}"]`}</pre>`;

const Refused = ({ why }) => html`<div class="problem" role="alert"><strong>${why}</strong>
  <div>The listener has to list this page: <code>origins = ["${location.origin}"]</code>.</div></div>`;

function Login({ listeners, connect, why, filter }) {
  const submit = (event) => {
    event.preventDefault();
    const { elements } = event.currentTarget;
    connect(listeners[Number(elements.listener.value)], {
      filter: elements.filter.value.trim(),
      login: { clientId: clientId(), username: elements.username.value, password: elements.password.value },
    });
  };
  return html`<form onSubmit=${submit}>
    <div class="form">
      <${Field} label="Topic filter"><input name="filter" required defaultValue=${filter} placeholder="plant/#" autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label="Listener"><select name="listener">${listeners.map((one, at) => html`<option value=${at}>${one.name || one.address}</option>`)}</select></${Field}>
      <${Field} label="User of MQTT"><input name="username" autocomplete="off" spellcheck=${false} placeholder="none" /></${Field}>
      <${Field} label="Password"><input name="password" type="password" autocomplete="off" /></${Field}>
      <div class="actions"><button type="submit">Subscribe</button></div>
    </div>
    ${why && (why === 'the connection ended' ? html`<${Refused} why="The listener refused the connection." />` : html`<${Problem} error=${{ message: why }} />`)}
  </form>`;
}

function Send({ client, fail }) {
  const [done, tell] = useState('');
  const submit = (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const { topic, payload, retain } = form.elements;
    tell('');
    client.publish(topic.value, new TextEncoder().encode(payload.value), retain.checked).then(() => tell('Published.'), fail);
  };
  return html`<details><summary>Publish</summary><form onSubmit=${submit} class="form">
    <${Field} label="Topic"><input name="topic" required autocomplete="off" spellcheck=${false} /></${Field}>
    <${Field} label="Payload"><input name="payload" autocomplete="off" spellcheck=${false} /></${Field}>
    <label class="check field"><input type="checkbox" name="retain" /> Retained</label>
    <div class="actions"><button type="submit">Publish</button><span role="status">${done}</span></div>
  </form></details>`;
}

export function Live({ query, theme }) {
  const { data, error } = useLoad((signal) => get('/listeners', signal), []);
  const [state, set] = useState({ name: 'out' });
  const [messages, add, clear] = useMessages();
  const [shown, show] = useState(null);
  const client = useRef(null);
  useEffect(() => () => client.current?.close(), []);
  const connect = (listener, { filter, login }) => {
    clear();
    set({ name: 'connecting', filter });
    const fail = (problem) => set((old) => ({ ...old, problem }));
    const own = new MqttClient(place(listener), login, {
      connected: () => own.subscribe(filter).then(() => set({ name: 'in', filter, fail }), (problem) => { own.close(); set({ name: 'out', filter, why: problem.message }); }),
      message: add,
      ended: (why) => client.current === own && set((old) => (old.why ? old : { name: 'out', filter, why })),
    });
    client.current = own;
  };
  const leave = () => {
    client.current.close();
    set({ name: 'out', filter: state.filter });
  };
  const listeners = data?.listeners.filter((one) => one.protocol === 'websockets') ?? [];
  if (data && listeners.length === 0) return html`<${NoListener} />`;
  if (state.name === 'out') return html`<${Problem} error=${error} />${data && html`<${Login} listeners=${listeners} connect=${connect} why=${state.why} filter=${state.filter ?? query.filter} />`}`;
  return html`<p class="actions"><${Name} text=${state.filter} /><span class="dim" role="status">${state.name === 'in' ? `subscribed; ${count(messages.length)} shown` : 'connecting'}</span>
      <button type="button" onClick=${clear}>Clear</button><button type="button" onClick=${leave}>Leave</button></p>
    <${Problem} error=${state.problem} />
    ${state.name === 'in' && html`<${Send} client=${client.current} fail=${state.fail} />`}
    ${messages.length === 0 ? html`<${Empty}>No message yet.</${Empty}>`
      : html`<${Table} label="Live messages" columns=${COLUMNS} items=${messages} id=${(item) => item.id} open=${show} />`}
    ${shown && html`<${Message} message=${shown} messages=${messages} theme=${theme} close=${() => show(null)} />`}`;
}
