// Charts of samples: lines on a canvas.
import { html, useEffect, useRef } from './lib.js';
import { figures, samples } from './figures.js';
import { bytes, tick } from './format.js';

const HEIGHT = 180;
/** Room for the values, the times, and above and to the right of the lines. */
const [LEFT, BOTTOM, TOP, RIGHT] = [62, 24, 8, 10];
/** Pixels between two values or two times, at least. */
const [VALUE_GAP, TIME_GAP] = [30, 84];
/** Seconds between two times of the axis. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800];
const COLOURS = ['--series-1', '--series-2', '--series-3', '--series-4', '--series-5'];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The smallest step of 1, 2 or 5 times a power of ten that is no less than `least`; for bytes, a power of two. */
function niceStep(least, isBytes) {
  if (isBytes) return 2 ** Math.max(0, Math.ceil(Math.log2(least)));
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9));
}

/** The lowest and the highest value of the axis. */
function range(values, isFree) {
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  if (!isFree) return [0, Math.max(high, 10) * 1.1];
  if (low > high) return [0, 1];
  const spare = (high - low) * 0.1 || Math.abs(high) * 0.1 || 1;
  return [low - spare, high + spare];
}

/** Multiples of `step` in a range, moved by `offset`. */
function multiples(low, high, step, offset = 0) {
  const first = Math.ceil((low + offset) / step);
  const length = Math.max(0, Math.floor((high + offset) / step) - first + 1);
  return Array.from({ length }, (_, at) => (first + at) * step - offset);
}

/** Samples whose fields are sums, each with the fields before it: one area stands on the other. */
const stacked = (series, samples) => samples.map((sample) => {
  let sum = 0;
  return { t: sample.t, ...Object.fromEntries(series.map(({ field }) => [field, Number.isFinite(sample[field]) ? (sum += sample[field]) : null])) };
});

/** Draws grid, axes and lines. `canvas` has the size that it is shown with. */
function draw(canvas, { series, format, source, seconds, isFree, isStacked }) {
  const width = canvas.clientWidth;
  const scale = devicePixelRatio;
  if (width <= LEFT + RIGHT) return;
  [canvas.width, canvas.height] = [width * scale, HEIGHT * scale];
  const to = Date.now() / 1000;
  const from = to - seconds;
  const recent = source.filter((sample) => sample.t >= from);
  const shown = isStacked ? stacked(series, recent) : recent;
  const values = series.flatMap(({ field }) => shown.map((sample) => sample[field])).filter(Number.isFinite);
  const [low, high] = range(values, isFree);
  const [wide, tall] = [width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
  const x = (time) => LEFT + ((time - from) / seconds) * wide;
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * tall;
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  pen.font = '12px system-ui, sans-serif';
  pen.fillStyle = colour('--dim');
  const line = (colour, thickness, path) => {
    pen.strokeStyle = colour;
    pen.lineWidth = thickness;
    pen.beginPath();
    path();
    pen.stroke();
  };
  const grid = colour('--line');
  const rule = (...points) => line(grid, 1, () => points.forEach(([left, top], at) => pen[at === 0 ? 'moveTo' : 'lineTo'](Math.round(left) + 0.5, Math.round(top) + 0.5)));
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  for (const value of multiples(low, high, niceStep(((high - low) * VALUE_GAP) / tall, format === bytes))) {
    rule([LEFT, y(value)], [LEFT + wide, y(value)]);
    // The sum of steps such as 0.1 has more digits than its steps.
    pen.fillText(format(Number(value.toPrecision(12))), LEFT - 8, y(value));
  }
  pen.textAlign = 'center';
  const step = TIME_STEPS.find((one) => (one / seconds) * wide >= TIME_GAP) ?? TIME_STEPS.at(-1);
  // Days and hours begin as they do here.
  const offset = -60 * new Date().getTimezoneOffset();
  for (const time of multiples(from, to, step, offset)) {
    rule([x(time), TOP], [x(time), TOP + tall]);
    if (x(time) < width - 30) pen.fillText(tick(time * 1000, seconds), x(time), HEIGHT - 8);
  }
  /** Fills what lies between two lines, without gaps: a missing value has no width. */
  const fill = (field, below) => {
    const points = shown.filter((sample) => Number.isFinite(sample[field]));
    pen.beginPath();
    for (const sample of points) pen.lineTo(x(sample.t), y(sample[field]));
    for (const sample of points.reverse()) pen.lineTo(x(sample.t), y(below ? sample[below] : 0));
    pen.fill();
  };
  series.forEach(({ field }, at) => {
    if (isStacked) {
      pen.fillStyle = colour(COLOURS[at]);
      fill(field, series[at - 1]?.field);
      return;
    }
    const own = colour(COLOURS[at]);
    let isOpen = false;
    line(own, 2, () => {
      for (const { t, [field]: value } of shown) {
        // A value that is missing is a gap; one between two gaps is a dot.
        if (Number.isFinite(value) && !isOpen) pen.moveTo(x(t) - 2, y(value));
        if (Number.isFinite(value)) pen.lineTo(x(t), y(value));
        isOpen = Number.isFinite(value);
      }
    });
    if (!isFree) return;
    pen.fillStyle = own;
    for (const { t, [field]: value } of shown) if (Number.isFinite(value)) pen.fillRect(x(t) - 2.5, y(value) - 2.5, 5, 5);
  });
}

/** A chart of `source`. `series`: `{name, field}`; `format` writes values; the axis begins at 0 unless it `isFree`; areas of `isStacked` stand on each other. */
export function Chart({ title, series, format, source, seconds, theme, isFree, isStacked, last = samples.at(-1) ?? {} }) {
  const canvas = useRef(null);
  useEffect(() => {
    const element = canvas.current;
    const paint = () => draw(element, { series, format, source, seconds, isFree, isStacked });
    const end = figures.listen(paint);
    const watch = new ResizeObserver(paint);
    watch.observe(element);
    paint();
    return () => {
      end();
      watch.disconnect();
    };
  }, [source, seconds, theme]);
  return html`<figure class="chart">
    <figcaption>${title}<span class="legend">${series.map(
      (one, at) => html`<span key=${one.field}><i class=${`series-${at + 1}`}></i>${one.name} <b>${format(last[one.field])}</b></span>`,
    )}</span></figcaption>
    <canvas ref=${canvas} role="img" aria-label=${title}></canvas>
  </figure>`;
}
