// The steps of an explanation, with a verdict each.
import { visible } from './format.js';
import { html } from './lib.js';
import { Name } from './parts.js';

/** `good`, `bad` or `open` for a verdict. */
export function mood(verdict) {
  if (verdict === 'ok' || verdict === 'delivered') return 'good';
  return /^(depends|unknown|waiting)/.test(verdict) ? 'open' : 'bad';
}

const SIGNS = { good: '✓', bad: '✗', open: '?' };

export const Verdict = ({ text }) => html`<span class=${`verdict ${mood(text)}`}><span aria-hidden="true">${SIGNS[mood(text)]} </span>${text}</span>`;

export function Steps({ verdict, steps }) {
  return html`<div role="status"><p><strong>Verdict:</strong> <${Verdict} text=${verdict} /></p>
    <ol class="steps">${steps.map(
      (one, at) => html`<li key=${at}><strong>${one.step}</strong> <${Verdict} text=${one.verdict} />
        ${one.by && html`<div>by <${Name} text=${one.by} /></div>`}${one.place && html`<div><code>${visible(one.place)}</code></div>`}${one.detail && html`<div class="dim">${visible(one.detail)}</div>`}</li>`,
    )}</ol></div>`;
}
