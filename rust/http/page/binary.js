// Payloads of CBOR and MessagePack as values of JSON.

const MAX_DEPTH = 64;
const UINTS = ['Uint8', 'Uint16', 'Uint32', 'BigUint64'];
const INTS = ['Int8', 'Int16', 'Int32', 'BigInt64'];

export const refuse = () => {
  throw new RangeError();
};
export const hex = (data) => `h'${Array.from(data, (byte) => byte.toString(16).padStart(2, '0')).join('')}'`;
const name = (key) => (typeof key === 'object' ? JSON.stringify(key) : String(key));

/** Reads bytes one after the other; throws behind the last one. */
export class Reader {
  constructor(data) {
    this.data = data;
    this.view = new DataView(data.buffer, data.byteOffset, data.length);
    this.at = 0;
    this.depth = 0;
  }

  number(kind, size) {
    const value = this.view[`get${kind}`](this.at);
    this.at += size;
    return value;
  }

  float(size) {
    const value = this.number(`Float${8 * size}`, size);
    return Number.isFinite(value) ? value : String(value);
  }

  /** A whole number of 1, 2, 4 or 8 bytes for the steps 0 to 3; text if JSON has no such number. */
  whole(step, kinds = UINTS) {
    const value = this.number(kinds[step] ?? refuse(), 1 << step);
    return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  }

  bytes(length) {
    if (!(length <= this.data.length - this.at)) refuse();
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }

  text(length) {
    return new TextDecoder('utf-8', { fatal: true }).decode(this.bytes(length));
  }

  /** `count` values, or those up to the byte 0xff. Each has a byte at least: a false count ends with the data. */
  list(count, read) {
    if (++this.depth > MAX_DEPTH) refuse();
    const found = [];
    while (!(found.length >= count)) {
      if (count === Infinity && this.data[this.at] === 0xff) break;
      found.push(read(this));
    }
    this.at += count === Infinity ? 1 : 0;
    this.depth -= 1;
    return found;
  }

  map(count, read) {
    const found = Object.create(null);
    for (const [key, value] of this.list(count, () => [read(this), read(this)])) found[name(key)] = value;
    return found;
  }
}

function half(bits) {
  const exponent = (bits >> 10) & 31;
  const part = bits & 1023;
  if (exponent === 31) return part ? 'NaN' : bits >> 15 ? '-Infinity' : 'Infinity';
  const size = exponent ? (1024 + part) * 2 ** (exponent - 25) : part * 2 ** -24;
  return bits >> 15 ? -size : size;
}

function cbor(reader) {
  const first = reader.whole(0);
  const [kind, short] = [first >> 5, first & 31];
  if (kind === 7) {
    if (short > 19 && short < 24) return [false, true, null, null][short - 20];
    if (short === 25) return half(reader.whole(1));
    return short === 26 || short === 27 ? reader.float(short === 26 ? 4 : 8) : refuse();
  }
  const isOpen = short === 31 && (kind === 4 || kind === 5);
  const length = short < 24 ? short : isOpen ? Infinity : reader.whole(short - 24);
  switch (kind) {
    case 0: return length;
    case 1: return typeof length === 'string' ? String(-1n - BigInt(length)) : -1 - length;
    case 2: return hex(reader.bytes(length));
    case 3: return reader.text(length);
    case 4: return reader.list(length, cbor);
    case 5: return reader.map(length, cbor);
    default: return { [`tag ${length}`]: reader.list(1, cbor)[0] };
  }
}

function messagePack(reader) {
  const first = reader.whole(0);
  const extension = (length) => ({ [`type ${reader.whole(0, INTS)}`]: hex(reader.bytes(length)) });
  if (first < 0x80) return first;
  if (first < 0x90) return reader.map(first & 15, messagePack);
  if (first < 0xa0) return reader.list(first & 15, messagePack);
  if (first < 0xc0) return reader.text(first & 31);
  if (first > 0xdf) return first - 0x100;
  const steps = (begin) => reader.whole(first - begin);
  if (first < 0xc4) return first === 0xc1 ? refuse() : [null, null, false, true][first - 0xc0];
  if (first < 0xc7) return hex(reader.bytes(steps(0xc4)));
  if (first < 0xca) return extension(steps(0xc7));
  if (first < 0xcc) return reader.float(first === 0xca ? 4 : 8);
  if (first < 0xd0) return steps(0xcc);
  if (first < 0xd4) return reader.whole(first - 0xd0, INTS);
  if (first < 0xd9) return extension(1 << (first - 0xd4));
  if (first < 0xdc) return reader.text(steps(0xd9));
  if (first < 0xde) return reader.list(reader.whole(first - 0xdb), messagePack);
  return reader.map(reader.whole(first - 0xdd), messagePack);
}

/** The list or the map that all of `data` is, as `{kind, value}`; undefined if it is neither. */
export function unpacked(data) {
  for (const [kind, read] of [['CBOR', cbor], ['MessagePack', messagePack]]) {
    try {
      const reader = new Reader(data);
      const value = read(reader);
      if (reader.at === data.length && typeof value === 'object' && value) return { kind, value };
    } catch {
      // Another format.
    }
  }
  return undefined;
}
