// Numbers in the payloads of a topic, and a chart of them.
import { Chart } from './chart.js';
import { count, payload } from './format.js';
import { html, useRef, useState } from './lib.js';

const MAX_FIELDS = 50;
/** Lengths of the axis, in seconds. */
const SPANS = [10, 30, 60, 300, 900, 3600, 14_400, 86_400];

/** Adds the numbers in a value to `found`, by their place, such as `motor.phases[2]`. */
function collect(value, place, found) {
  if (typeof value === 'number') found.set(place, value);
  else if (value && typeof value === 'object') {
    for (const [key, inner] of Object.entries(value)) {
      if (found.size >= MAX_FIELDS) return;
      collect(inner, Array.isArray(value) ? `${place}[${key}]` : place ? `${place}.${key}` : key, found);
    }
  }
}

/** The numbers of a message; read once. */
function numbers(message) {
  if (!message.numbers) {
    message.numbers = new Map();
    collect(payload(message.payload, message.topic).value, '', message.numbers);
  }
  return message.numbers;
}

/** A chart of a field of `message` in the messages of its topic, which are the newest first. */
export function ValueChart({ message, messages, theme }) {
  const fields = [...numbers(message).keys()];
  const [field, choose] = useState(fields[0]);
  const source = useRef([]);
  if (fields.length === 0) return null;
  const same = messages.filter((one) => one.topic === message.topic && numbers(one).has(field)).reverse();
  source.current.splice(0, Infinity, ...same.map((one) => ({ t: one.ms / 1000, value: numbers(one).get(field) })));
  const oldest = (Date.now() - (same[0]?.ms ?? 0)) / 1000;
  const seconds = SPANS.find((span) => span >= oldest) ?? SPANS.at(-1);
  const name = same.length === 1 ? '1 value' : `${count(same.length)} values`;
  return html`${fields.length > 1 && html`<p><label>Chart of <select onChange=${(event) => choose(event.currentTarget.value)}>
      ${fields.map((one) => html`<option key=${one}>${one}</option>`)}</select></label></p>`}
    <${Chart} key=${field} title=${field || 'Value'} series=${[{ name, field: 'value' }]} format=${String} source=${source.current}
      seconds=${seconds} theme=${theme} isFree=${true} last=${source.current.at(-1)} />`;
}
