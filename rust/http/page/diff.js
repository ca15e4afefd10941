// Differences of two payloads.

/** Fields that are compared, and cells of the table that compares lines. */
const MAX_FIELDS = 5000;
const MAX_CELLS = 1_000_000;

/** Adds the fields of a value to `found`, by their place, such as `motor.phases[2]`. */
function flatten(value, place, found) {
  const inner = value && typeof value === 'object' ? Object.entries(value) : [];
  if (inner.length === 0) found.set(place, JSON.stringify(value));
  for (const [key, one] of inner) {
    if (found.size >= MAX_FIELDS) return;
    flatten(one, Array.isArray(value) ? `${place}[${key}]` : place ? `${place}.${key}` : key, found);
  }
}

/** The fields that differ, as `{sign, text}`. */
export function fieldChanges(before, after) {
  const [old, now] = [new Map(), new Map()];
  flatten(before, '', old);
  flatten(after, '', now);
  const changes = [];
  for (const [place, value] of now) {
    if (!old.has(place)) changes.push({ sign: '+', text: `${place}: ${value}` });
    else if (old.get(place) !== value) changes.push({ sign: '~', text: `${place}: ${old.get(place)} → ${value}` });
  }
  for (const [place, value] of old) if (!now.has(place)) changes.push({ sign: '-', text: `${place}: ${value}` });
  return changes;
}

/** Signs of lines that are all replaced. */
const replaced = (old, now) => [...old.map((text) => ({ sign: '-', text })), ...now.map((text) => ({ sign: '+', text }))];

/** Lines of the longest common part, and those around it. */
function compared(old, now) {
  if (old.length * now.length > MAX_CELLS) return replaced(old, now);
  const wide = now.length + 1;
  const longest = new Uint16Array((old.length + 1) * wide);
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = now.length - 1; column >= 0; column -= 1) {
      const at = row * wide + column;
      longest[at] = old[row] === now[column] ? longest[at + wide + 1] + 1 : Math.max(longest[at + wide], longest[at + 1]);
    }
  }
  const lines = [];
  let [row, column] = [0, 0];
  while (row < old.length && column < now.length) {
    const at = row * wide + column;
    if (old[row] === now[column]) {
      lines.push({ sign: ' ', text: old[row++] });
      column += 1;
    } else if (longest[at + wide] >= longest[at + 1]) lines.push({ sign: '-', text: old[row++] });
    else lines.push({ sign: '+', text: now[column++] });
  }
  return [...lines, ...replaced(old.slice(row), now.slice(column))];
}

/** The lines that differ, as `{sign, text}`, with the one before and the one after. */
export function lineChanges(before, after) {
  const [old, now] = [before.split('\n'), after.split('\n')];
  let [first, last] = [0, 0];
  while (first < Math.min(old.length, now.length) && old[first] === now[first]) first += 1;
  while (last < Math.min(old.length, now.length) - first && old.at(-1 - last) === now.at(-1 - last)) last += 1;
  const inner = compared(old.slice(first, old.length - last), now.slice(first, now.length - last));
  const context = (lines) => lines.map((text) => ({ sign: ' ', text }));
  if (inner.length === 0) return [];
  return [...context(now.slice(Math.max(0, first - 1), first)), ...inner, ...context(now.slice(now.length - last).slice(0, 1))];
}

/** The first byte that differs; the length if none does. */
export function firstChange(before, after) {
  const length = Math.max(before.length, after.length);
  for (let at = 0; at < length; at += 1) if (before[at] !== after[at]) return at;
  return length;
}
