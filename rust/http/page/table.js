// A list of any length, of which only the rows in sight are in the document.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from './lib.js';

const ROW = 34;
const SPARE = 8;

/** The keys that move through a list, and by how many rows. */
const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };

function useWindow(scroller, length) {
  const [range, set] = useState({ from: 0, to: 40 });
  const measure = () => {
    // A list that has left the document may have scrolled before.
    if (!scroller.current) return;
    const { scrollTop, clientHeight } = scroller.current;
    const from = Math.max(0, Math.floor(scrollTop / ROW) - SPARE);
    const to = Math.min(length, Math.ceil((scrollTop + clientHeight) / ROW) + SPARE);
    set((old) => (old.from === from && old.to === to ? old : { from, to }));
  };
  useLayoutEffect(measure, [length]);
  useEffect(() => {
    const watch = new ResizeObserver(measure);
    watch.observe(scroller.current);
    return () => watch.disconnect();
  }, [length]);
  return [range, measure];
}

/**
 * The list. `columns`: `{title, width, cell(item), class}`; `id(item)` names a row, `open(item)` shows it, `pick(item, event)` selects it (Space,
 * or a click on a cell of the class `pick`), `more()` loads the rows behind the last one if `hasMore`.
 */
export function Table(props) {
  const { columns, items, id, open, pick, more, hasMore, label, total } = props;
  const scroller = useRef(null);
  const [range, measure] = useWindow(scroller, items.length);
  const [marked, set] = useState(0);
  // Keys may come faster than the list is drawn.
  const latest = useRef(0);
  const mark = (at) => {
    latest.current = at;
    set(at);
  };
  const shown = items.slice(range.from, range.to);
  useEffect(() => {
    if (hasMore && range.to >= items.length - 100) more();
  }, [range.to, items.length, hasMore]);
  const press = (event) => {
    // The head has a checkbox.
    if (event.target !== scroller.current) return undefined;
    if (event.key === 'Enter' && items[latest.current]) return open(items[latest.current]);
    if (event.key === ' ' && pick && items[latest.current]) {
      event.preventDefault();
      return pick(items[latest.current], event);
    }
    const step = MOVES[event.key];
    if (step === undefined) return undefined;
    event.preventDefault();
    const next = Math.max(0, Math.min(items.length - 1, latest.current + step));
    mark(next);
    const box = scroller.current;
    if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
    // The head covers one row.
    const low = (next + 2) * ROW - box.clientHeight;
    if (low > box.scrollTop) box.scrollTop = low;
    return undefined;
  };
  const click = (item, at) => (event) => {
    mark(at);
    if (!event.target.closest('.pick')) return open(item);
    scroller.current.focus({ preventScroll: true });
    return pick(item, event);
  };
  const wide = columns.map((column) => column.width ?? '1fr').join(' ');
  const narrow = columns.filter((column) => !column.class?.includes('wide')).map((column) => column.width ?? '1fr').join(' ');
  return html`<div class="table" role="table" aria-label=${label} aria-rowcount=${total ?? items.length} style=${{ '--wide': wide, '--narrow': narrow }}>
    <div class="rows" ref=${scroller} onScroll=${measure} tabIndex="0" onKeyDown=${press} role="rowgroup" aria-label=${`${label}: arrow keys move, Enter opens${pick ? ', Space selects' : ''}`}>
      <div class="row head" role="row">${columns.map((column) => html`<div role="columnheader" class=${column.class}>${column.title}</div>`)}</div>
      <div class="space" style=${{ height: `${items.length * ROW}px` }}>
        ${shown.map((item, index) => html`<${Row} key=${id(item)} item=${item} list=${props} at=${range.from + index}
          isMarked=${range.from + index === marked} open=${open && click(item, range.from + index)} />`)}
      </div>
    </div>
  </div>`;
}

/** A row. Its cells are made again only if the list has other `list` properties: not when one scrolls, which draws all rows in sight. */
function Row({ item, list, at, isMarked, open }) {
  const cells = useMemo(() => list.columns.map((column) => html`<div role="cell" class=${column.class}>${column.cell(item)}</div>`), [item, list]);
  return html`<div class=${`row${isMarked ? ' marked' : ''}${open ? ' opens' : ''}`} role="row" aria-rowindex=${at + 1} style=${{ top: `${at * ROW}px` }} onClick=${open}>${cells}</div>`;
}
