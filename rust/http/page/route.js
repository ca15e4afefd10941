// The address of a screen: `#/part/part?name=value`.
import { address } from './api.js';
import { Store } from './store.js';

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const pairs = query.split('&').filter(Boolean).map((pair) => pair.split(/=(.*)/s).slice(0, 2).map(decoded));
  return { parts: path === '' ? [] : path.split('/').map(decoded), query: Object.fromEntries(pairs) };
}

/** The current address, as `{parts, query}`. */
export const path = new Store(parse(location.hash));
addEventListener('hashchange', () => path.set(parse(location.hash)));

/** The address of a screen, for links. */
export const link = (parts, query) => `#${address(parts, query)}`;

export function go(parts, query) {
  location.hash = link(parts, query);
}

/** Replaces the query of the current screen; the back button does not stop here. */
export function refine(query) {
  history.replaceState(null, '', link(path.value.parts, query));
  path.set(parse(location.hash));
}

/** Goes where a text of the search field leads: a topic or filter, else clients. */
export function search(text) {
  if (!text) return;
  if (/[/#+]/.test(text)) go(['subscriptions'], /[#+]/.test(text) ? { filter: text } : { topic: text });
  else go(['clients'], { q: text });
}
