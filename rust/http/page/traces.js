// Screen 9: traces, which record the packets of chosen clients; live, and as files.
import { address, download, follow, get, may } from './api.js';
import { bytes, count, visible } from './format.js';
import { html, useEffect, useRef, useState } from './lib.js';
import { change, confirm, Dialog, Empty, Facts, Field, Heading, Name, Partial, Plain, Problem, Time } from './parts.js';
import { refine } from './route.js';
import { useLoad } from './store.js';
import { Table } from './table.js';

const KEPT = 2000;
const CONDITIONS = [['client_id', 'Client', '* and ? stand for other characters'], ['username', 'User', ''], ['ip', 'Address or network', '10.0.0.0/8'], ['topic', 'Topic filter', 'plant/#']];
const DURATIONS = [['600', '10 minutes'], ['3600', '1 hour'], ['86400', '1 day']];
const PAYLOADS = [['none', 'no payloads'], ['head:64', 'their first 64 bytes'], ['all', 'whole payloads']];
const FORMATS = [['json', 'JSON'], ['text', 'Text'], ['pcapng', 'Wireshark']];
const ENDINGS = { json: 'jsonl', text: 'txt', pcapng: 'pcapng' };

const mayTrace = () => may('operate', 'payload');

/** What a trace records, in a line. */
function conditions({ where }) {
  const parts = CONDITIONS.filter(([name]) => where[name]).map(([name, title]) => html`<span key=${name}>${title.toLowerCase()} <${Name} text=${where[name]} /> </span>`);
  return parts.length > 0 ? parts : 'everything';
}

const titleOf = (trace) => trace.name || trace.id;

/** How long a trace lasts, and what it keeps. */
export const TraceTerms = () => html`<${Field} label="For"><select name="duration">${DURATIONS.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select></${Field}>
  <${Field} label="Payloads"><select name="payload">${PAYLOADS.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select></${Field}>`;

/** The members of a request for `TraceTerms`. */
export const traceTerms = ({ duration, payload }) => ({ for_s: Number(duration.value), payload: payload.value });

function Start({ close, done }) {
  const submit = async (event) => {
    event.preventDefault();
    const { elements } = event.currentTarget;
    const where = Object.fromEntries(CONDITIONS.map(([name]) => [name, elements[name].value.trim()]).filter(([, value]) => value));
    const asked = { name: elements.title.value.trim(), where, ...traceTerms(elements) };
    const started = await change('POST', '/traces', asked, 'The trace has begun.');
    if (started) done(started.id);
  };
  return html`<${Dialog} title="Start a trace" close=${close}>
    <form onSubmit=${submit}>
      <p class="dim">All conditions have to hold; without any, it records all packets of the broker. Passwords are never recorded.</p>
      ${CONDITIONS.map(([name, title, example]) => html`<${Field} key=${name} label=${title}><input name=${name} placeholder=${example} autocomplete="off" spellcheck=${false} /></${Field}>`)}
      <${Field} label="Name"><input name="title" maxlength="64" placeholder="none" autocomplete="off" /></${Field}>
      <${TraceTerms} />
      <div class="actions"><button type="button" onClick=${close}>Cancel</button><button type="submit">Start</button></div>
    </form>
  </${Dialog}>`;
}

const SHOWN_FIELDS = 6;
const text = (value) => (typeof value === 'string' ? visible(value) : JSON.stringify(value));

/** The fields of a packet, or what happened, in a line. */
function line(packet) {
  if (packet.lost) return `${count(packet.lost)} packets are missing here`;
  if (packet.note) return visible([packet.note, packet.topic].filter(Boolean).join(': '));
  const { topic, ...others } = packet.fields ?? {};
  const fields = Object.entries(others).slice(0, SHOWN_FIELDS).map(([name, value]) => `${name}=${text(value)}`);
  return [topic && visible(topic), ...fields].filter(Boolean).join(' ');
}

const SIGNS = { in: ['→', 'from the client'], out: ['←', 'to the client'], broker: ['•', 'in the broker'] };
const Direction = ({ dir }) => html`<span role="img" aria-label=${SIGNS[dir][1]} title=${SIGNS[dir][1]}>${SIGNS[dir][0]}</span>`;

const COLUMNS = [
  { title: 'Time', width: 'minmax(76px, 108px)', cell: (one) => (one.ts_us ? html`<${Time} ms=${one.ts_us / 1000} /><span class="dim wide">.${String(Math.floor(one.ts_us / 1000) % 1000).padStart(3, '0')}</span>` : '') },
  { title: '', width: '16px', cell: (one) => html`<${Direction} dir=${one.dir} />` },
  { title: 'Client', width: 'minmax(80px, 1fr)', cell: (one) => html`<${Name} text=${one.client_id} empty="" />` },
  { title: 'Packet', width: '104px', cell: (one) => one.packet ?? '' },
  { title: 'Fields', width: 'minmax(120px, 3fr)', class: 'wide name', cell: line },
];

function Packet({ packet, close }) {
  const fields = Object.entries(packet.fields ?? {}).map(([name, value]) => [name.replaceAll('_', ' '), html`<span class="name">${text(value)}</span>`]);
  return html`<${Dialog} title=${packet.packet ?? 'In the broker'} close=${close}>
    <${Facts} rows=${[
      packet.ts_us && ['Time', html`<${Time} ms=${packet.ts_us / 1000} /> <span class="dim">${String(packet.ts_us % 1e6).padStart(6, '0')} µs</span>`],
      packet.client_id && ['Client', html`<${Name} text=${packet.client_id} />`],
      packet.ip && ['Address', `${packet.ip}:${packet.port}`],
      ['Direction', SIGNS[packet.dir][1]],
      packet.bytes !== undefined && ['Size', `${count(packet.bytes)} bytes`],
      packet.topic && ['Topic in the broker', html`<${Name} text=${packet.topic} />`],
      packet.note && ['Note', visible(packet.note)],
      packet.lost && ['Missing', count(packet.lost)],
      ...fields,
    ]} /><div class="actions"><button type="button" onClick=${close}>Close</button></div></${Dialog}>`;
}

/** The packets of a trace as they come, the newest first; shown at most five times a second. */
function usePackets(id) {
  const [state, set] = useState({ packets: [] });
  useEffect(() => {
    const control = new AbortController();
    let kept = [];
    let timer = 0;
    const show = (rest) => set((old) => ({ ...old, packets: kept, ...rest }));
    const take = (kind, data) => {
      if (kind === 'end') return show({ hasEnded: true });
      kept = [{ dir: 'broker', ...data, key: Math.random() }, ...kept.slice(0, KEPT - 1)];
      timer ||= setTimeout(() => {
        timer = 0;
        show();
      }, 200);
      return undefined;
    };
    set({ packets: [] });
    follow(address(['traces', id, 'live'], { after: '0' }), take, control.signal)
      .catch((error) => control.signal.aborted || set((old) => ({ ...old, error })));
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [id]);
  return state;
}

function Live({ id, close }) {
  const { packets, error, hasEnded } = usePackets(id);
  const [packet, show] = useState(null);
  return html`<section class="full" aria-label="Packets">
    <p class="actions"><span class="dim" role="status">${count(packets.length)} packets${packets.length === KEPT ? ', the newest' : ''}${hasEnded ? '; the trace has ended' : ''}</span>
      <button type="button" class="small" onClick=${close}>Close</button></p>
    <${Problem} error=${error} />
    ${packets.length === 0 ? html`<${Empty}>No packet yet.</${Empty}>`
      : html`<${Table} label="Packets" columns=${COLUMNS} items=${packets} id=${(one) => one.key} open=${show} />`}
    ${packet && html`<${Packet} packet=${packet} close=${() => show(null)} />`}
  </section>`;
}

function Actions({ trace, watch, reload }) {
  const path = ['traces', trace.id];
  const save = (format) => download(address([...path, 'file'], { format }), `${trace.name.replace(/[^\w.-]/g, '_') || trace.id}.${ENDINGS[format]}`);
  const stop = async () => (await change('DELETE', address(path, { keep: 'true' }), undefined, 'The trace has ended. It can be read for an hour.')) && reload();
  const remove = async () => {
    const asked = { title: 'Remove this trace?', text: html`<p>Its ${count(trace.packets)} packets are removed, too.</p>`, action: 'Remove' };
    if ((await confirm(asked)) && (await change('DELETE', address(path), undefined, 'The trace is removed.'))) reload(true);
  };
  return html`<div class="actions">
    <button type="button" class="small" onClick=${watch}>Packets</button>
    ${FORMATS.map(([format, title]) => html`<button type="button" class="small" key=${format} title="Save as a file" onClick=${() => save(format)}>${title}</button>`)}
    ${trace.active && html`<button type="button" class="small" onClick=${stop}>Stop</button>`}
    <button type="button" class="small danger" onClick=${remove}>Remove</button>
  </div>`;
}

export function Traces({ query }) {
  const { data, error, reload } = useLoad((signal) => get('/traces', signal), []);
  const [isStarting, start] = useState(false);
  const begun = useRef(0);
  const shown = data?.items.find((trace) => trace.id === query.id);
  const watch = (id) => refine(id ? { id } : {});
  useEffect(() => {
    // A trace ends by itself, and its figures grow.
    begun.current = setInterval(() => data?.items.some((trace) => trace.active) && reload(), 5000);
    return () => clearInterval(begun.current);
  }, [data]);
  const columns = [
    { title: 'Trace', cell: (one) => html`<${Name} text=${titleOf(one)} /><div class="dim small">${conditions(one)}</div>` },
    { title: 'State', cell: (one) => (one.active ? html`until <${Time} ms=${one.ends_ms} />` : html`<span class="dim">ended <${Time} ms=${one.ends_ms} /></span>`) },
    { title: 'Packets', class: 'number', cell: (one) => html`${count(one.packets)}<div class="dim small">${bytes(one.bytes)}${one.dropped > 0 ? `, ${count(one.dropped)} gone` : ''}</div>` },
    mayTrace() && { title: '', cell: (one) => html`<${Actions} trace=${one} watch=${() => watch(one.id)} reload=${(isGone) => { if (isGone && one.id === query.id) watch(null); reload(); }} />` },
  ].filter(Boolean);
  return html`<div>
    <${Heading} title="Traces">
      <button type="button" onClick=${reload}>Refresh</button>
      ${mayTrace() && html`<button type="button" onClick=${() => start(true)}>Start a trace</button>`}
    </${Heading}>
    <${Problem} error=${error} retry=${reload} /><${Partial} partial=${data?.partial} />
    ${data?.items.length === 0 && html`<${Empty}>There is no trace. A trace records packets of chosen clients for a limited time.</${Empty}>`}
    ${data?.items.length > 0 && html`<${Plain} label="Traces" rows=${data.items} columns=${columns} />`}
    ${shown && mayTrace() && html`<h2 class="foot">Packets of <${Name} text=${titleOf(shown)} /></h2><${Live} key=${shown.id} id=${shown.id} close=${() => watch(null)} />`}
    ${isStarting && html`<${Start} close=${() => start(false)} done=${(id) => { start(false); reload(); watch(id); }} />`}
  </div>`;
}
