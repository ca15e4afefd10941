// A client of MQTT 5.0 over WebSocket: it subscribes at QoS 0, and publishes at QoS 0 and 1.

const CONNECT = 0x10;
const PUBLISH = 0x30;
const SUBSCRIBE = 0x82;
const PINGREQ = 0xc0;
const DISCONNECT = 0xe0;
const CONNACK = 2;
const PUBACK = 4;
const SUBACK = 9;
const SERVER_DISCONNECT = 14;

const KEEP_ALIVE_S = 30;
/** Bytes of the largest packet that the broker is to send. */
const MAXIMUM_PACKET = 1 << 20;

const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();
const decoder = new TextDecoder();

const number16 = (value) => [value >> 8, value & 0xff];

function text(value) {
  const bytes = encoder.encode(value);
  return [...number16(bytes.length), ...bytes];
}

/** A Variable Byte Integer. */
export function varInt(value) {
  const bytes = [];
  do {
    bytes.push((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>>= 7;
  } while (value > 0);
  return bytes;
}

const packet = (first, body) => new Uint8Array([first, ...varInt(body.length), ...body]);

function connectPacket({ clientId, username, password }) {
  const flags = 0x02 | (username ? 0x80 : 0) | (password ? 0x40 : 0);
  const properties = [0x27, ...[24, 16, 8, 0].map((shift) => (MAXIMUM_PACKET >> shift) & 0xff)];
  const names = [text(clientId), username ? text(username) : [], password ? text(password) : []].flat();
  return packet(CONNECT, [...text('MQTT'), 5, flags, ...number16(KEEP_ALIVE_S), ...varInt(properties.length), ...properties, ...names]);
}

/** Reads what a packet has, in its order. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  byte() {
    if (this.at >= this.bytes.length) throw new RangeError('the packet is too short');
    return this.bytes[this.at++];
  }

  number(size) {
    let value = 0;
    for (let left = size; left > 0; left -= 1) value = value * 256 + this.byte();
    return value;
  }

  varInt() {
    let [value, factor, byte] = [0, 1, 0];
    do {
      byte = this.byte();
      value += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte & 0x80);
    return value;
  }

  take(length) {
    if (this.at + length > this.bytes.length) throw new RangeError('the packet is too short');
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  text() {
    return decoder.decode(this.take(this.number(2)));
  }
}

const SIZES = { 0x01: 1, 0x02: 4, 0x11: 4, 0x13: 2, 0x17: 1, 0x19: 1, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2a: 1 };
const NAMES = { 0x02: 'expiry', 0x03: 'contentType', 0x08: 'responseTopic', 0x1f: 'reason' };

/** The properties at the reader's place that somebody may want to see. */
function properties(reader) {
  const part = new Reader(reader.take(reader.varInt()));
  const found = { user: [] };
  while (part.at < part.bytes.length) {
    const id = part.byte();
    let value;
    if (id === 0x26) found.user.push([part.text(), part.text()]);
    else if (id === 0x0b) value = part.varInt();
    else if (id in SIZES) value = part.number(SIZES[id]);
    else value = id === 0x09 || id === 0x16 ? part.take(part.number(2)) : part.text();
    if (NAMES[id]) found[NAMES[id]] = value;
  }
  return found;
}

/** Takes the complete packets out of `bytes`; returns the rest. Calls `take(first byte, body)`. */
export function split(bytes, take) {
  while (bytes.length > 0) {
    const reader = new Reader(bytes);
    let length;
    try {
      reader.byte();
      length = reader.varInt();
    } catch {
      return bytes;
    }
    if (reader.at + length > bytes.length) return bytes;
    take(bytes[0], bytes.subarray(reader.at, reader.at + length));
    bytes = bytes.subarray(reader.at + length);
  }
  return NOTHING;
}

function readPublish(first, body) {
  const reader = new Reader(body);
  const topic = reader.text();
  const qos = (first >> 1) & 3;
  if (qos > 0) reader.number(2);
  const found = properties(reader);
  // A copy: with payloads in the buffers of their frames, a browser had up to 330 MB at 10,000 messages a second, in place of 165.
  return { topic, qos, retain: (first & 1) === 1, payload: body.slice(reader.at), properties: found };
}

/** An outcome in words: its code, and the broker's reason if there is one. */
function outcome(what, body, skip) {
  const reader = new Reader(body);
  reader.take(skip);
  const code = body.length > skip ? reader.byte() : 0;
  let reason = '';
  try {
    reason = reader.at < body.length ? properties(reader).reason ?? '' : '';
  } catch {
    // The code says enough.
  }
  const words = `${what}: 0x${code.toString(16).padStart(2, '0')}${reason ? ` ${reason}` : ''}`;
  return { code, words };
}

/** A connection. `on`: `connected()`, `message(message)`, `ended(why)`. */
export class MqttClient {
  #socket;
  #rest = NOTHING;
  #timer;
  #waiting = new Map();
  #id = 0;
  #why = null;

  constructor(url, login, on) {
    this.on = on;
    this.#socket = new WebSocket(url, 'mqtt');
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.onopen = () => this.#socket.send(connectPacket(login));
    this.#socket.onmessage = (event) => this.#receive(new Uint8Array(event.data));
    this.#socket.onclose = () => this.#end('the connection ended');
  }

  /** Subscribes; resolves to the granted QoS. */
  subscribe(filter) {
    return this.#ask((id) => packet(SUBSCRIBE, [...number16(id), 0, ...text(filter), 0]), `subscribe to ${filter}`);
  }

  /** Publishes at QoS 1; resolves once the broker has it. */
  publish(topic, payload, retain) {
    return this.#ask((id) => packet(PUBLISH | 2 | (retain ? 1 : 0), [...text(topic), ...number16(id), 0, ...payload]), `publish to ${topic}`);
  }

  close() {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(new Uint8Array([DISCONNECT, 0]));
    this.#end(null);
  }

  #ask(make, what) {
    this.#id = (this.#id % 0xffff) + 1;
    const id = this.#id;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, what });
      this.#socket.send(make(id));
    });
  }

  #receive(bytes) {
    let whole = bytes;
    if (this.#rest.length > 0) {
      whole = new Uint8Array(this.#rest.length + bytes.length);
      whole.set(this.#rest);
      whole.set(bytes, this.#rest.length);
    }
    try {
      const rest = split(whole, (first, body) => this.#take(first, body));
      this.#rest = rest.length > 0 ? rest.slice() : NOTHING;
    } catch (error) {
      this.#end(error.message);
    }
  }

  #take(first, body) {
    const kind = first >> 4;
    if (kind === 3) this.on.message(readPublish(first, body));
    else if (kind === CONNACK) this.#admit(outcome('the login was refused', body, 1));
    else if (kind === SUBACK || kind === PUBACK) this.#answer(kind, body);
    else if (kind === SERVER_DISCONNECT) this.#why = outcome('the broker ended the connection', body, 0).words;
  }

  #admit({ code, words }) {
    if (code >= 0x80) {
      this.#end(words);
      return;
    }
    this.#timer = setInterval(() => this.#socket.send(new Uint8Array([PINGREQ, 0])), KEEP_ALIVE_S * 500);
    this.on.connected();
  }

  #answer(kind, body) {
    const id = (body[0] << 8) | body[1];
    const asked = this.#waiting.get(id);
    if (!asked) return;
    this.#waiting.delete(id);
    const code = kind === SUBACK ? body.at(-1) : body[2] ?? 0;
    if (code >= 0x80) asked.reject(new Error(`${asked.what} was refused: 0x${code.toString(16)}`));
    else asked.resolve(code);
  }

  #end(why) {
    clearInterval(this.#timer);
    this.#socket.onclose = null;
    this.#socket.onmessage = null;
    this.#socket.close();
    for (const asked of this.#waiting.values()) asked.reject(new Error('the connection ended'));
    this.#waiting.clear();
    this.on.ended(this.#why ?? why);
  }
}
