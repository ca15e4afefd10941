// Topics with retained messages as a tree, whose levels are read when they are opened.
import { address, get } from './api.js';
import { count, fromBase64, payload } from './format.js';
import { html, useEffect, useState } from './lib.js';
import { Empty, Name, Problem } from './parts.js';
import { Table } from './table.js';

/** The beginning of a payload, in a line. */
function beginning({ head_base64: head, payload_bytes: length }) {
  const data = fromBase64(head);
  const { kind, text } = payload(data);
  if (kind === 'hexadecimal') return `${count(length)} bytes`;
  return text.replace(/\s+/g, ' ') + (length > data.length ? '…' : '');
}

const hasMore = (item) => item.messages > item.retained;

/** `show(topic)` opens the retained message of a topic. */
export function Tree({ show }) {
  // The lists that are open, by the topic above them; undefined is the root.
  const [levels, set] = useState(new Map());
  const [error, fail] = useState(null);
  const change = (prefix, level) => set((old) => {
    const levels = new Map(old);
    if (level) levels.set(prefix, level);
    else levels.delete(prefix);
    return levels;
  });
  const load = (prefix, old) => {
    fail(null);
    get(address(['topics'], { prefix, limit: 1000, after: old?.next })).then(({ items, next }) => change(prefix, { items: [...(old?.items ?? []), ...items], next }), fail);
  };
  useEffect(() => load(), []);
  const rows = (prefix, depth) => {
    const level = levels.get(prefix);
    if (!level) return [];
    const inside = level.items.flatMap((item) => [{ ...item, depth }, ...rows(item.topic, depth + 1)]);
    return level.next ? [...inside, { topic: `${prefix ?? ''}\n`, name: 'more', depth, load: () => load(prefix, level) }] : inside;
  };
  const open = (item) => {
    if (item.load) item.load();
    else if (!hasMore(item)) show(item.topic);
    else if (levels.has(item.topic)) change(item.topic);
    else load(item.topic);
  };
  const columns = [
    { title: 'Topic', width: 'minmax(110px, 4fr)', cell: (item) => html`<span style=${{ paddingLeft: `${item.depth}em` }}>
      ${hasMore(item) ? (levels.has(item.topic) ? '▾ ' : '▸ ') : ''}<${Name} text=${item.name} empty="(empty)" /></span>` },
    { title: 'Value', width: 'minmax(80px, 3fr)', class: 'name', cell: (item) => item.head_base64 !== undefined && beginning(item) },
    { title: 'Message', width: '76px', cell: (item) => item.retained && html`<button type="button" class="small" onClick=${(event) => { event.stopPropagation(); show(item.topic); }}>Show</button>` },
    { title: 'At and below', width: '100px', class: 'number wide', cell: (item) => !item.load && count(item.messages) },
    { title: 'Subscribers', width: '90px', class: 'number wide', cell: (item) => item.subscribers && count(item.subscribers) },
  ];
  const items = rows(undefined, 0);
  const refresh = () => [...levels.keys()].forEach((prefix) => load(prefix));
  return html`<p class="actions"><button type="button" onClick=${refresh}>Refresh</button></p>
    <${Problem} error=${error} retry=${refresh} />
    ${levels.get(undefined)?.items.length === 0 ? html`<${Empty}>No retained message.</${Empty}>`
      : html`<${Table} label="Topics" columns=${columns} items=${items} id=${(item) => item.topic} open=${open} />`}`;
}
