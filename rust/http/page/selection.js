// Selected clients of the list, and actions on all of them.
import { address, ask, may } from './api.js';
import { BanTerms, banTerms } from './ban.js';
import { count } from './format.js';
import { html, useEffect, useMemo, useRef, useState } from './lib.js';
import { Dialog, Name, tell } from './parts.js';
import { TraceTerms, traceTerms } from './traces.js';

/** Requests that are sent at a time. */
const AT_ONCE = 4;
/** Clients that a dialog names. */
const NAMED = 100;

const named = (items) => `${count(items.length)} ${items.length === 1 ? 'client' : 'clients'}`;

/** The selection among `items`: its items, and functions to replace it and to switch an item. A client that leaves the list leaves the selection. */
export function useSelection(items) {
  const [ids, set] = useState(new Set());
  const last = useRef(0);
  const selected = useMemo(() => (ids.size > 0 ? items.filter((item) => ids.has(item.client_id)) : []), [ids, items]);
  const select = (chosen) => set(new Set(chosen.map((item) => item.client_id)));
  useEffect(() => {
    if (selected.length < ids.size) select(selected);
  }, [selected]);
  /** Switches an item; with Shift, all items from the one before. */
  const pick = (item, { shiftKey }) => {
    const from = shiftKey ? last.current : item.index;
    const range = items.slice(Math.min(from, item.index), Math.max(from, item.index) + 1);
    last.current = item.index;
    set((old) => {
      const isOn = !old.has(item.client_id);
      const changed = new Set(old);
      for (const { client_id: id } of range) changed[isOn ? 'add' : 'delete'](id);
      return changed;
    });
  };
  return { ids, selected, select, pick };
}

/** The column of checkboxes. */
export function pickColumn({ ids, selected, select }, items) {
  const isAll = selected.length === items.length;
  const label = isAll ? 'Select none' : `Select all ${count(items.length)} shown`;
  return {
    title: html`<input type="checkbox" aria-label=${label} title=${label} checked=${isAll} indeterminate=${selected.length > 0 && !isAll} onChange=${() => select(isAll ? [] : items)} />`,
    width: '16px',
    class: 'pick',
    cell: (item) => html`<input type="checkbox" tabIndex="-1" aria-label=${`Select ${item.client_id}`} checked=${ids.has(item.client_id)} />`,
  };
}

/** Calls `act` for each item, some at a time, until `isStopped()`; returns the failures as `{item, error}`, and the items that are left. */
async function forEach(items, act, step, isStopped) {
  const failed = [];
  let next = 0;
  const work = async () => {
    while (next < items.length && !isStopped()) {
      const item = items[next++];
      await act(item).catch((error) => failed.push({ item, error }));
      step();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { failed, left: items.slice(next) };
}

const one = (id) => ['clients', id];

const Disconnects = ({ items }) => {
  const away = items.filter((item) => !item.connected).length;
  return html`<p>Their wills are published, and they may connect again at once; a ban prevents that.</p>
    ${away > 0 && html`<p>${count(away)} of them ${away === 1 ? 'is' : 'are'} not connected: only ${away === 1 ? 'its session' : 'their sessions'} can be ended.</p>`}
    <label class="check"><input type="checkbox" name="ends" /> Also end their sessions: subscriptions end, queued messages are lost</label>`;
};

/** `terms` reads the fields of the form, `act` does it for a client, `done` tells how many. */
const ACTIONS = {
  disconnect: {
    title: 'Disconnect',
    Fields: Disconnects,
    terms: (fields) => ({ session: fields.ends.checked ? 'end' : 'keep' }),
    act: (terms, id) => ask('DELETE', address(one(id), terms)),
    done: 'disconnected',
  },
  ban: {
    title: 'Ban',
    Fields: () => html`<p>They are disconnected. Each gets a ban of its client identifier.</p><${BanTerms} />`,
    terms: banTerms,
    act: (terms, value) => ask('POST', '/bans', { kind: 'client_id', value, ...terms }),
    done: 'banned',
  },
  trace: {
    title: 'Trace',
    isHarmless: true,
    Fields: () => html`<p>Each gets a trace of its own; they are listed at Traces.</p><${TraceTerms} />`,
    terms: traceTerms,
    // A pattern cannot name an asterisk.
    act: (terms, id) => ask('POST', '/traces', { where: { client_id: id.replaceAll('*', '?') }, ...terms }),
    done: 'traced',
  },
};

const Names = ({ items, cell }) => html`<ul class="names">${items.slice(0, NAMED).map(cell)}
  ${items.length > NAMED && html`<li class="dim">${count(items.length - NAMED)} more</li>`}</ul>`;

function Failures({ action, failed, total, close }) {
  return html`<${Dialog} title=${`${action.title}: ${count(failed.length)} of ${count(total)} failed`} close=${close}>
    <p>These clients were not ${action.done}, and stay selected:</p>
    <${Names} items=${failed} cell=${({ item, error }) => html`<li key=${item.client_id}><${Name} text=${item.client_id} />
      <div class="danger"><${Name} text=${[error.message, error.hint].filter(Boolean).join(' – ')} /></div></li>`} />
    <div class="actions"><button type="button" onClick=${close}>Close</button></div>
  </${Dialog}>`;
}

/** Asks, and does it for each client of `items`. `done(items)` gets the clients for which it was not done. */
function ForAll({ action, items: now, close, done }) {
  // The clients that the question named, not those that a refresh leaves.
  const [items] = useState(now);
  const [finished, step] = useState(null);
  const [failed, fail] = useState(null);
  const isStopped = useRef(false);
  useEffect(() => () => { isStopped.current = true; }, []);
  const submit = async (event) => {
    event.preventDefault();
    const terms = action.terms(event.currentTarget.elements);
    step(0);
    const act = (item) => action.act(terms, item.client_id);
    const result = await forEach(items, act, () => step((count) => count + 1), () => isStopped.current);
    const number = items.length - result.failed.length - result.left.length;
    if (number > 0) tell(`${number === 1 ? '1 client is' : `${count(number)} clients are`} ${action.done}.`);
    done([...result.failed.map(({ item }) => item), ...result.left]);
    if (result.failed.length > 0) fail(result.failed);
    else close();
  };
  if (failed) return html`<${Failures} action=${action} failed=${failed} total=${items.length} close=${close} />`;
  const stop = () => {
    isStopped.current = true;
    if (finished === null) close();
  };
  return html`<${Dialog} title=${`${action.title} ${named(items)}?`} close=${stop}>
    <form onSubmit=${submit}>
      <${Names} items=${items} cell=${(item) => html`<li key=${item.client_id}><${Name} text=${item.client_id} /></li>`} />
      <${action.Fields} items=${items} />
      <div class="actions">
        ${finished !== null && html`<span role="status">${count(finished)} of ${count(items.length)}</span>`}
        <button type="button" onClick=${stop}>${finished === null ? 'Cancel' : 'Stop'}</button>
        <button type="submit" class=${action.isHarmless ? '' : 'danger'} disabled=${finished !== null}>${action.title} ${count(items.length)}</button>
      </div>
    </form>
  </${Dialog}>`;
}

/** What can be done with the selection; nothing while it is empty. */
export function SelectionBar({ selection: { selected, select }, refresh }) {
  const [name, open] = useState(null);
  const actions = Object.keys(ACTIONS).filter((key) => key !== 'trace' || may('payload'));
  const done = (items) => {
    select(items);
    // Connections end a moment after the answers.
    setTimeout(refresh, 300);
  };
  return html`${selected.length > 0 && html`<div class="actions selection" role="group" aria-label="Selected clients">
      <span role="status">${count(selected.length)} selected</span>
      ${actions.map((key) => html`<button type="button" key=${key} class=${ACTIONS[key].isHarmless ? '' : 'danger'} onClick=${() => open(key)}>${ACTIONS[key].title}</button>`)}
      <button type="button" onClick=${() => select([])}>Select none</button>
    </div>`}
    ${name && html`<${ForAll} key=${name} action=${ACTIONS[name]} items=${selected} close=${() => open(null)} done=${done} />`}`;
}
