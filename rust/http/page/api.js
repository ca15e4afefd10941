// Requests to the API of the broker that served the page.
import { Store } from './store.js';

const KEY = 'mqttcore.key';
/** Is there while this browser has a cookie, which scripts cannot see. */
const COOKIE = 'mqttcore.cookie';
const BASE = '/api/v1';

/** Who asks: null before the login, else `{name, scopes}`. */
export const session = new Store(null);

/** Whether the caller has a scope. */
export const may = (...scopes) => scopes.every((scope) => session.value?.scopes.includes(scope));

// Of this tab only, and gone with it.
let secret = sessionStorage.getItem(KEY);

/** A request that failed; `hint` says what to do. */
export class ApiError extends Error {
  constructor(status, detail, hint) {
    super(detail);
    this.status = status;
    this.hint = hint;
  }
}

const unreachable = () => new ApiError(0, 'The broker does not answer.', 'Is it running, and can this machine reach it?');

async function problemOf(response) {
  const problem = await response.json().catch(() => ({}));
  return new ApiError(response.status, problem.detail ?? `status ${response.status}`, problem.hint);
}

/** Sends a request; returns the response. */
async function send(method, path, body, signal, headers = {}) {
  if (secret) headers.Authorization = `Bearer ${secret}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  // Pages of other origins cannot send it: a cookie alone changes nothing.
  if (method !== 'GET') headers['X-Mqttcore'] = '1';
  const text = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(BASE + path, { method, headers, body: text, signal, credentials: secret ? 'omit' : 'same-origin', cache: 'no-store' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  if (response.status === 401 && session.value) forget(secret ? 'The key is no longer valid.' : 'The login has ended.');
  if (!response.ok) throw await problemOf(response);
  return response;
}

/** Sends a request; returns the JSON of the answer, or null if there is none. */
export async function ask(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  const kind = response.headers.get('content-type') ?? '';
  return kind.includes('json') ? response.json() : null;
}

export const get = (path, signal) => ask('GET', path, undefined, signal);

/** Path and query, encoded; empty values are left out. */
export function address(parts, query = {}) {
  const path = parts.map((part) => `/${encodeURIComponent(part)}`).join('');
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
  return text ? `${path}?${text}` : path;
}

/** Takes the complete events out of `text`; returns the rest. `place.id` becomes the id of the last one. */
function parse(text, take, place) {
  const blocks = text.split('\n\n');
  const rest = blocks.pop();
  for (const block of blocks) {
    const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2)));
    place.id = fields.id ?? place.id;
    if (fields.data) take(fields.event, JSON.parse(fields.data));
  }
  return rest;
}

/** Calls `take(kind, data)` for each event of a stream behind `place`, until it ends. */
export async function follow(path, take, signal, place = {}) {
  const response = await send('GET', path, undefined, signal, place.id ? { 'Last-Event-ID': place.id } : {});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    text = parse(text + value, take, place);
  }
}

/** Has the browser save a text or an answer. */
export function save(content, name) {
  const place = URL.createObjectURL(content);
  Object.assign(document.createElement('a'), { href: place, download: name }).click();
  URL.revokeObjectURL(place);
}

export const download = async (path, name) => save(await (await send('GET', path)).blob(), name);

/** Why the login form is shown; null: it is the first time. */
export const farewell = new Store(null);

/** Logs in with a key; without one, as whoever reaches the socket. */
export async function logIn(key) {
  secret = key;
  try {
    const caller = await get('/caller');
    if (key) sessionStorage.setItem(KEY, key);
    farewell.set(null);
    session.set(caller);
  } catch (error) {
    secret = null;
    sessionStorage.removeItem(KEY);
    if (error.status === 401) localStorage.removeItem(COOKIE);
    throw error;
  }
}

/** Logs in as an MQTT user: the answer has a cookie. */
export async function logInAs(username, password) {
  secret = null;
  const caller = await ask('POST', '/login', { username, password });
  localStorage.setItem(COOKIE, '1');
  farewell.set(null);
  session.set(caller);
}

/** Logs in with the key of this tab or the cookie of this browser, if there is one. */
export async function resume(isKnown) {
  if (secret || isKnown || localStorage.getItem(COOKIE)) await logIn(secret);
}

function forget(why) {
  if (secret) sessionStorage.removeItem(KEY);
  else localStorage.removeItem(COOKIE);
  secret = null;
  farewell.set(why);
  session.set(null);
}

export function logOut() {
  if (!secret && localStorage.getItem(COOKIE)) ask('DELETE', '/login').catch(() => {});
  forget(null);
}
