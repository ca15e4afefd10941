// Small parts that all screens use.
import { ask } from './api.js';
import { ago, clock, utc, visible } from './format.js';
import { html, useEffect, useRef, useState } from './lib.js';
import { Store, useStore } from './store.js';

/** A text of a stranger: always text, never in another direction than its own. */
export const Name = ({ text, empty = '–' }) => (text ? html`<bdi class="name">${visible(text)}</bdi>` : html`<span class="dim">${empty}</span>`);

/** A time, as local time with UTC on hover. */
export const Time = ({ ms, since }) =>
  ms ? html`<time dateTime=${new Date(ms).toISOString()} title=${utc(ms)}>${since ? ago(ms) : clock(ms)}</time>` : html`<span class="dim">–</span>`;

export const Dot = ({ on, label }) => html`<span class=${on ? 'dot on' : 'dot'} role="img" aria-label=${label} title=${label}></span>`;

/** Why a request failed, and what to do. */
export function Problem({ error, retry }) {
  if (!error) return null;
  return html`<div class="problem" role="alert">
    <strong>${visible(error.message)}</strong>
    ${error.hint && html`<div>${visible(error.hint)}</div>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** What a list shows that is incomplete: shards that did not answer. */
export const Partial = ({ partial }) =>
  partial?.length ? html`<div class="note">Incomplete: ${partial.map((part) => `shard ${part.shard}: ${part.why}`).join('; ')}.</div>` : null;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Heading = ({ title, children }) => html`<header class="heading"><h1>${title}</h1><div class="actions">${children}</div></header>`;

export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`;
}

/** Names and values. */
export const Facts = ({ rows }) =>
  html`<dl class="facts">${rows.filter(Boolean).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

/** A table of a few rows. `columns`: `{title, cell, class}`. */
export function Plain({ columns, rows, label }) {
  return html`<div class="scroll"><table aria-label=${label}>
    <thead><tr>${columns.map((column) => html`<th class=${column.class} scope="col">${column.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map((column) => html`<td class=${column.class}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** Tabs that arrow keys move between. `tabs`: `[id, title]`. */
export function Tabs({ tabs, current, choose, label }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([id]) => id === current);
    choose(tabs[(at + step + tabs.length) % tabs.length][0]);
    event.currentTarget.querySelectorAll('[role=tab]')[(at + step + tabs.length) % tabs.length].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(
      ([id, title]) => html`<button type="button" role="tab" key=${id} aria-selected=${id === current} tabIndex=${id === current ? 0 : -1}
        onClick=${() => choose(id)}>${title}</button>`,
    )}
  </div>`;
}

const messages = new Store([]);
let told = 0;

/** Shows a message for some seconds. */
export function tell(text, kind = 'good') {
  const id = (told += 1);
  messages.set([...messages.value, { id, text, kind }]);
  setTimeout(() => messages.set(messages.value.filter((one) => one.id !== id)), kind === 'good' ? 5_000 : 12_000);
}

export function Messages() {
  const shown = useStore(messages);
  return html`<div class="messages" aria-live="polite" role="status">${shown.map((one) => html`<div key=${one.id} class=${one.kind}>${one.text}</div>`)}</div>`;
}

/** Sends a change; shows whether it was made. Returns the answer, or undefined if it failed. */
export async function change(method, path, body, done) {
  try {
    const answer = await ask(method, path, body);
    if (done) tell(typeof done === 'function' ? done(answer) : done);
    return answer ?? {};
  } catch (error) {
    tell([error.message, error.hint].filter(Boolean).map(visible).join(' – '), 'bad');
    return undefined;
  }
}

const question = new Store(null);

/** Asks before something that cannot be undone. `typed`: what has to be typed. Returns whether it is to be done. */
export const confirm = (asked) => new Promise((resolve) => question.set({ ...asked, resolve }));

export function Question() {
  const asked = useStore(question);
  const [typed, type] = useState('');
  useEffect(() => type(''), [asked]);
  if (!asked) return null;
  const close = (answer) => {
    question.set(null);
    asked.resolve(answer);
  };
  const isReady = asked.typed === undefined || typed === String(asked.typed);
  return html`<${Dialog} title=${asked.title} close=${() => close(false)}>
    <form onSubmit=${(event) => { event.preventDefault(); if (isReady) close(true); }}>
      <div>${asked.text}</div>
      ${asked.typed !== undefined && html`<${Field} label=${`Type ${asked.typed} to go on`}>
        <input value=${typed} onInput=${(event) => type(event.currentTarget.value)} autocomplete="off" /></${Field}>`}
      <div class="actions">
        <button type="button" onClick=${() => close(false)}>Cancel</button>
        <button type="submit" class="danger" disabled=${!isReady}>${asked.action}</button>
      </div>
    </form>
  </${Dialog}>`;
}

/** A modal dialog; Escape closes it. */
export function Dialog({ title, close, children }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
  }, []);
  return html`<dialog ref=${element} onCancel=${(event) => { event.preventDefault(); close(); }} aria-label=${title}>
    <h2>${title}</h2>${children}
  </dialog>`;
}
