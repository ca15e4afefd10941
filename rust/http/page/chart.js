// Charts of samples.
import { html, useEffect, useRef } from './lib.js';
import { figures, samples } from './figures.js';
import { bytes, tick } from './format.js';
import uPlot from './vendor/uplot.js';

/** Steps of an axis of bytes, so that its values are whole KiB or MiB. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const COLOURS = ['--series-1', '--series-2', '--series-3'];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function data(source, series, seconds) {
  const begin = Date.now() / 1000 - seconds;
  const shown = source.filter((sample) => sample.t >= begin);
  return [shown.map((sample) => sample.t), ...series.map((one) => shown.map((sample) => sample[one.field]))];
}

function options(series, format, width, seconds, isFree) {
  const axis = { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: 180,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: {
      x: { range: () => [Date.now() / 1000 - seconds, Date.now() / 1000] },
      y: isFree ? {} : { range: (_, low, high) => [0, Math.max(high ?? 0, 10) * 1.1] },
    },
    axes: [
      { ...axis, space: 80, size: 28, values: (_, values) => values.map((second) => tick(second * 1000, seconds)) },
      { ...axis, size: 62, values: (_, values) => values.map(format), ...(format === bytes && { incrs: POWERS }) },
    ],
    series: [
      {},
      ...series.map((one, at) => ({ label: one.name, stroke: colour(COLOURS[at]), width: 2, points: { show: isFree } })),
    ],
  };
}

/** A chart of `source`. `series`: `{name, field}`; `format` writes values; the axis begins at 0 unless it `isFree`. */
export function Chart({ title, series, format, source, seconds, theme, isFree, last = samples.at(-1) ?? {} }) {
  const box = useRef(null);
  useEffect(() => {
    const element = box.current;
    const plot = new uPlot(options(series, format, element.clientWidth, seconds, isFree), data(source, series, seconds), element);
    const end = figures.listen(() => plot.setData(data(source, series, seconds)));
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 180 }));
    watch.observe(element);
    return () => {
      end();
      watch.disconnect();
      plot.destroy();
    };
  }, [source, seconds, theme]);
  return html`<figure class="chart">
    <figcaption>${title}<span class="legend">${series.map(
      (one, at) => html`<span key=${one.field}><i class=${`series-${at + 1}`}></i>${one.name} <b>${format(last[one.field])}</b></span>`,
    )}</span></figcaption>
    <div ref=${box} role="img" aria-label=${title}></div>
  </figure>`;
}
