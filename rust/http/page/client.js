// Screen 3: one client, and what may be done with it.
import { address, get, may } from './api.js';
import { BanForm } from './ban.js';
import { figures } from './figures.js';
import { bytes, count, duration, fromBase64, payload, rate } from './format.js';
import { html, useEffect, useMemo, useRef, useState } from './lib.js';
import { change, confirm, Dialog, Dot, Empty, Facts, Heading, Name, Plain, Problem, Tabs, Time } from './parts.js';
import { EventList } from './happened.js';
import { link, refine } from './route.js';
import { useLoad } from './store.js';
import { PayloadView } from './viewer.js';

const NEVER = 0xffff_ffff;
/** Milliseconds between two readings of a client. */
const READ_MS = 2000;

const TRANSPORTS = { tcp: 'TCP', websocket: 'WebSocket', unix: 'Unix socket' };

const expiry = (seconds) => (seconds === NEVER ? 'never' : seconds === 0 ? 'when the connection ends' : `${duration(seconds)} after the connection ends`);

/** The bytes a second of its connection between the last two readings; null before the second one. */
function useByteRates(client) {
  const last = useRef({});
  const rates = useRef(null);
  if (client !== last.current.client) {
    const before = last.current.client;
    const at = performance.now();
    const seconds = (at - last.current.at) / 1000;
    const isSame = before?.bytes && client?.bytes && before.port === client.port;
    const per = (way) => Math.max(0, client.bytes[way] - before.bytes[way]) / seconds;
    rates.current = isSame ? { in: per('in'), out: per('out') } : null;
    last.current = { client, at };
  }
  return rates.current;
}

/** Calls `reload` now and then, while figures come and the page is in sight. */
function useReadings(id, reload) {
  useEffect(() => {
    let at = Date.now();
    return figures.listen(() => {
      if (document.hidden || Date.now() - at < READ_MS) return;
      at = Date.now();
      reload();
    });
  }, [id]);
}

function Session({ client, byteRates }) {
  return html`<${Facts} rows=${[
    ['User', html`<${Name} text=${client.username} empty="none" />`],
    ['Address', client.address && html`<${Name} text=${client.port ? `${client.address} port ${client.port}` : client.address} />`],
    ['Listener', html`<${Name} text=${client.listener} />`],
    client.transport && ['Transport', `${TRANSPORTS[client.transport]}, ${client.tls ? `TLS ${client.tls.version} with ${client.tls.cipher}` : 'not encrypted'}`],
    ['MQTT', client.version],
    ['Connected since', html`<${Time} ms=${client.connected_at_ms} />`],
    client.session_created_ms && ['Session since', html`<${Time} ms=${client.session_created_ms} />`],
    client.last_packet_ms && ['Last packet', html`<${Time} ms=${client.last_packet_ms} />`],
    ['Keep Alive', client.keep_alive_s ? duration(client.keep_alive_s) : 'off'],
    ['Clean Start', client.clean_start ? 'yes' : 'no'],
    ['Session expires', client.session_expires_at_ms ? html`<${Time} ms=${client.session_expires_at_ms} />` : expiry(client.session_expiry_s)],
    ['Subscriptions', count(client.subscriptions)],
    ['Queue', `${count(client.queue.messages)} of ${count(client.queue.max_messages)} messages, ${bytes(client.queue.bytes)}, ${count(client.queue.on_disk)} on the disk only`],
    ['In flight', `${count(client.inflight.out)}${client.inflight.max === null ? '' : ` of ${count(client.inflight.max)}`} to the client, ${count(client.inflight.in)} from it`],
    ...Object.entries(client.dropped ?? {}).map(([why, messages]) => ['Dropped', `${count(messages)}: ${why}`]),
    client.takeovers > 0 && ['Taken over', `${count(client.takeovers)} times`],
    ['Durability', client.durability],
    ['Waits for the socket', bytes(client.backlog_bytes)],
    client.rates && ['Packets a second', `${rate(client.rates.in)} from it, ${rate(client.rates.out)} to it`],
    byteRates && ['Bytes a second', `${bytes(byteRates.in)} from it, ${bytes(byteRates.out)} to it`],
    client.bytes && ['Bytes', `${bytes(client.bytes.in)} from it, ${bytes(client.bytes.out)} to it`],
    ['Deliveries', client.latency ? `${rate(client.latency.last_ms)} ms, at worst ${rate(client.latency.worst_ms)} ms` : 'none measured'],
    client.waits_for && ['Messages wait for', client.waits_for === 'ack' ? 'acknowledgements' : 'its network: the socket is full'],
    client.held_back_by.length > 0 && ['Held back by', client.held_back_by.map((limit) => (limit === 'memory' ? 'memory: it is short' : `${limit}_per_second`)).join(', ')],
    ['Will', client.will ? html`<${Name} text=${client.will.topic} /> with QoS ${client.will.qos}${client.will.retain && ', retained'}${client.will.delay_s > 0 && `, after ${duration(client.will.delay_s)}`}` : html`<${Name} empty="none" />`],
    client.certificate && ['Certificate', html`<${Name} text=${client.certificate} />`],
    ['Permissions of', html`<${Name} text=${client.granted_by} empty="not known: not connected since the start" />`],
  ].filter(Boolean)} />`;
}

function Subscriptions({ id }) {
  const { data, error, reload } = useLoad((signal) => get(`${address(['clients', id, 'subscriptions'])}?limit=1000`, signal), [id]);
  const path = (item) => (item.share ? `$share/${item.share}/${item.filter}` : item.filter);
  const end = async (item) => {
    const text = html`<p>The client gets no messages of <${Name} text=${path(item)} /> any more. It is not notified.</p>`;
    if (!(await confirm({ title: 'End this subscription?', text, action: 'End it' }))) return;
    if (await change('DELETE', address(['clients', id, 'subscriptions', path(item)]), undefined, 'The subscription has ended.')) reload();
  };
  if (data?.items.length === 0) return html`<${Empty}>It has no subscriptions.</${Empty}>`;
  return html`<${Problem} error=${error} retry=${reload} />${data && html`<${Plain} label="Subscriptions" rows=${data.items} columns=${[
    { title: 'Filter', cell: (item) => html`<a href=${link(['subscriptions'], { filter: path(item) })}><${Name} text=${item.filter} /></a>` },
    { title: 'Group', cell: (item) => html`<${Name} text=${item.share} />` },
    { title: 'QoS', class: 'number', cell: (item) => item.qos },
    { title: 'Options', cell: (item) => [item.no_local && 'no local', item.retain_as_published && 'retain as published', item.subscription_id && `id ${item.subscription_id}`].filter(Boolean).join(', ') },
    may('operate') && { title: '', cell: (item) => html`<button type="button" class="small" onClick=${() => end(item)}>End</button>` },
  ].filter(Boolean)} />`}
  ${data?.next && html`<p class="dim">The first 1,000.</p>`}`;
}

function InFlight({ id }) {
  const { data, error, reload } = useLoad((signal) => get(`${address(['clients', id, 'inflight'])}?limit=1000`, signal), [id]);
  if (data?.items.length === 0) return html`<${Empty}>All messages are acknowledged.</${Empty}>`;
  const states = { waiting: 'not sent yet', sent: 'sent, not acknowledged', released: 'received, not completed' };
  return html`<${Problem} error=${error} retry=${reload} />${data && html`<${Plain} label="Messages in flight" rows=${data.items} columns=${[
    { title: 'Packet', class: 'number', cell: (item) => item.packet_id },
    { title: 'Topic', cell: (item) => html`<${Name} text=${item.topic} />` },
    { title: 'QoS', class: 'number', cell: (item) => item.qos },
    { title: 'State', cell: (item) => states[item.state] ?? item.state },
    { title: 'Bytes', class: 'number', cell: (item) => count(item.payload_bytes) },
  ]} />`}`;
}

function Payload({ message, close }) {
  const data = useMemo(() => fromBase64(message.payload_base64), [message]);
  const shown = payload(data, message.topic);
  return html`<${Dialog} title="Payload" close=${close}>
    <p><${Name} text=${message.topic} /> <span class="dim">${count(message.payload_bytes)} bytes, ${shown.kind}</span></p>
    <${PayloadView} topic=${message.topic} data=${data} />
    <div class="actions"><button type="button" onClick=${close}>Close</button></div>
  </${Dialog}>`;
}

function Queue({ id }) {
  const { data, error, reload } = useLoad((signal) => get(`${address(['clients', id, 'queue'])}?limit=100`, signal), [id]);
  const [shown, show] = useState(null);
  if (data?.messages === 0) return html`<${Empty}>No message waits.</${Empty}>`;
  return html`<${Problem} error=${error} retry=${reload} />${data && html`
    <p class="dim">${count(data.messages)} messages wait, ${count(data.on_disk)} of them on the disk only. The oldest in memory:</p>
    <${Plain} label="Queued messages" rows=${data.items} columns=${[
      { title: 'Topic', cell: (item) => html`<${Name} text=${item.topic} />` },
      { title: 'QoS', class: 'number', cell: (item) => item.qos },
      { title: 'Bytes', class: 'number', cell: (item) => count(item.payload_bytes) },
      { title: 'Expires', class: 'wide', cell: (item) => (item.expires_in_s === null ? 'never' : `in ${duration(item.expires_in_s)}`) },
      may('payload') && { title: '', cell: (item) => item.payload_base64 !== undefined && html`<button type="button" class="small" onClick=${() => show(item)}>Show</button>` },
    ].filter(Boolean)} />
    ${!may('payload') && html`<p class="dim">Payloads are shown to keys with the scope payload.</p>`}`}
    ${shown && html`<${Payload} message=${shown} close=${() => show(null)} />`}`;
}

function Permissions({ id, client }) {
  const { data, error, reload } = useLoad((signal) => get(`${address(['clients', id, 'permissions'])}?limit=1000`, signal), [id]);
  return html`<${Problem} error=${error} retry=${reload} />
    <p class="dim">Of <${Name} text=${client.granted_by} empty="an unknown plugin" />. The first rule that fits decides; without one, plugins with a hook for topics are asked, or the answer is no.</p>
    ${data?.items.length === 0 && html`<${Empty}>There are no rules.</${Empty}>`}
    ${data?.items.length > 0 && html`<${Plain} label="Permissions" rows=${data.items} columns=${[
      { title: 'Rule', cell: (rule) => (rule.allowed ? 'may' : html`<span class="danger">may not</span>`) },
      { title: 'Action', cell: (rule) => rule.actions.join(', ') },
      { title: 'Filter', cell: (rule) => html`<${Name} text=${rule.filter} />${rule.exact && ' exactly'}` },
      { title: 'Written at', class: 'wide', cell: (rule) => html`<${Name} text=${rule.place} />` },
    ]} />`}
    ${data?.next && html`<p class="dim">The first 1,000.</p>`}`;
}

const Events = ({ id }) => html`<${EventList} query=${{ client: id }} label="Events of this client" />`;

function Disconnect({ client, close, done }) {
  const [ends, end] = useState(!client.connected);
  const submit = async (event) => {
    event.preventDefault();
    const path = address(['clients', client.client_id], { session: ends ? 'end' : 'keep' });
    close();
    if (await change('DELETE', path, undefined, ends ? 'The session has ended.' : 'The client is disconnected.')) done(ends || client.session_expiry_s === 0);
  };
  return html`<${Dialog} title=${client.connected ? 'Disconnect this client?' : 'End this session?'} close=${close}>
    <form onSubmit=${submit}>
      <p><${Name} text=${client.client_id} /></p>
      ${client.connected && html`<p>Its will is published, and it may connect again at once; a ban prevents that.</p>
        <label class="check"><input type="checkbox" checked=${ends} onChange=${(event) => end(event.currentTarget.checked)} />
          Also end its session</label>`}
      ${ends && html`<p class="danger">Its subscriptions end, and ${count(client.queue.messages)} queued messages are lost.</p>`}
      <div class="actions"><button type="button" onClick=${close}>Cancel</button>
        <button type="submit" class="danger">${ends ? 'End the session' : 'Disconnect'}</button></div>
    </form>
  </${Dialog}>`;
}

/** How the client came into its state, in a sentence. */
function Why({ client }) {
  const { data } = useLoad((signal) => get(address(['explain', 'delivery'], { client: client.client_id, limit: 100 }), signal), [client.client_id, client.connected]);
  if (client.connected) return html`<p class="dim">Connected <${Time} ms=${client.connected_at_ms} since />.</p>`;
  const last = data?.items.find((event) => event.event === 'disconnected');
  if (!last) return html`<p class="dim">Not connected${data ? '; how its connection ended is not known any more' : ''}.</p>`;
  const code = last.reason_code === null ? '' : ` (0x${last.reason_code.toString(16).padStart(2, '0')})`;
  return html`<p class="dim">Disconnected at <${Time} ms=${last.last_ms} />${last.why ? `: ${last.why}` : ''}${code}.</p>`;
}

const TABS = [['session', 'Session'], ['subscriptions', 'Subscriptions'], ['inflight', 'In flight'], ['queue', 'Queue'], ['permissions', 'Permissions'], ['events', 'Events']];
const SHOWN = { session: Session, subscriptions: Subscriptions, inflight: InFlight, queue: Queue, permissions: Permissions, events: Events };

export function Client({ id, tab }) {
  const { data: client, error, reload } = useLoad((signal) => get(address(['clients', id]), signal), [id]);
  const [dialog, open] = useState(null);
  const byteRates = useByteRates(client);
  useReadings(id, reload);
  const current = SHOWN[tab] ? tab : 'session';
  const title = html`<a href="#/clients" class="back" aria-label="All clients">←</a> <${Dot} on=${client?.connected} label=${client?.connected ? 'connected' : 'not connected'} /> <${Name} text=${id} />`;
  const close = () => open(null);
  // The connection ends a moment after the answer.
  const done = (hasEnded) => (hasEnded ? (location.hash = link(['clients'])) : setTimeout(reload, 300));
  return html`<div>
    <${Heading} title=${title}>
      <button type="button" onClick=${reload}>Refresh</button>
      ${client && may('operate') && html`<button type="button" onClick=${() => open('ban')}>Ban</button>
        <button type="button" class="danger" onClick=${() => open('disconnect')}>${client.connected ? 'Disconnect' : 'End session'}</button>`}
    </${Heading}>
    <${Problem} error=${error} retry=${reload} />
    ${client && html`<${Why} client=${client} />
      <${Tabs} label="Parts of the client" tabs=${TABS} current=${current} choose=${(name) => refine(name === 'session' ? {} : { tab: name })} />
      <div role="tabpanel" key=${`${current}${client.connected}`}><${SHOWN[current]} id=${id} client=${client} byteRates=${byteRates} /></div>`}
    ${dialog === 'disconnect' && html`<${Disconnect} client=${client} close=${close} done=${done} />`}
    ${dialog === 'ban' && html`<${BanForm} kind="client_id" value=${id} close=${close} done=${() => setTimeout(reload, 300)} />`}
  </div>`;
}
