// MQTT.js: 3.1, 3.1.1 and 5.0, over TCP and WebSocket, with and without TLS.
import { createRequire } from "node:module";
import mqtt from "mqtt";

const [host, port, versionText, transport, topic] = process.argv.slice(2);
const version = Number(versionText);
const PATIENCE_MS = 10_000;
const NUMBERS = [...Array(10).keys()].map(String);

const say = (line) => console.log(JSON.stringify(line));

function expect(found, wanted) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`wanted ${b}, got ${a}`);
}

function inTime(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within 10 s: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** One client; what it got waits in `inbox`. */
class Peer {
  inbox = [];
  waiting = null;

  static async open(name, { clean = true, will } = {}) {
    const one = new Peer();
    const scheme = { tcp: "mqtt", websocket: "ws", tls: "mqtts", wss: "wss" }[transport];
    const path = scheme.startsWith("ws") ? "/mqtt" : "";
    const options = {
      clientId: `${topic}-${name}`,
      protocolVersion: version,
      protocolId: version === 3 ? "MQIsdp" : "MQTT",
      clean,
      reconnectPeriod: 0,
      connectTimeout: PATIENCE_MS,
    };
    if (version === 5) options.properties = { sessionExpiryInterval: clean ? 0 : 60 };
    if (will) options.will = { topic: will, payload: Buffer.from("gone"), qos: 1, retain: false };
    one.client = mqtt.connect(`${scheme}://${host}:${port}${path}`, options);
    one.client.on("message", (at, payload, packet) => {
      one.inbox.push([at, payload.toString(), packet.qos, packet.retain]);
      one.waiting?.();
    });
    one.connack = await inTime(
      new Promise((resolve, reject) => {
        one.client.once("connect", resolve);
        one.client.once("error", reject);
      }),
      "CONNACK",
    );
    return one;
  }

  async subscribe(filter, qos) {
    const [granted] = await inTime(this.client.subscribeAsync(filter, { qos }), "SUBACK");
    expect(granted.qos, qos);
  }

  async publish(at, payload, qos, retain = false) {
    await inTime(this.client.publishAsync(at, payload, { qos, retain }), "the end of a publish");
  }

  async take(count) {
    const all = new Promise((resolve) => {
      this.waiting = () => this.inbox.length >= count && resolve();
      this.waiting();
    });
    await inTime(all, `${count} messages, ${this.inbox.length} came`);
    return this.inbox.splice(0, count);
  }

  close() {
    return inTime(this.client.endAsync(), "the end");
  }

  drop() {
    this.client.stream.destroy();
    return this.client.endAsync(true);
  }
}

const peers = [];
async function open(name, options) {
  const one = await Peer.open(name, options);
  peers.push(one);
  return one;
}

const echo = (qos) => async () => {
  const at = `${topic}/qos${qos}`;
  const one = await open(`qos${qos}`);
  await one.subscribe(at, qos);
  for (const number of NUMBERS) await one.publish(at, number, qos);
  expect(await one.take(10), NUMBERS.map((number) => [at, number, qos, false]));
};

const checks = {
  connect: () => open("connect"),
  qos0: echo(0),
  qos1: echo(1),
  qos2: echo(2),
  async retained() {
    const at = `${topic}/retained`;
    const one = await open("retained");
    await one.publish(at, "kept", 1, true);
    await one.subscribe(at, 1);
    expect(await one.take(1), [[at, "kept", 1, true]]);
    await one.publish(at, "", 1, true);
    expect(await one.take(1), [[at, "", 1, false]]);
  },
  async will() {
    const at = `${topic}/will`;
    const watcher = await open("watcher");
    await watcher.subscribe(at, 1);
    const leaver = await Peer.open("leaver", { will: at });
    await leaver.drop();
    expect(await watcher.take(1), [[at, "gone", 1, false]]);
  },
  async resume() {
    const at = `${topic}/resume`;
    const first = await Peer.open("resume", { clean: false });
    await first.subscribe(at, 1);
    await first.close();
    const sender = await open("sender");
    for (const number of NUMBERS.slice(0, 3)) await sender.publish(at, number, 1);
    const second = await open("resume", { clean: false });
    expect(Boolean(second.connack.sessionPresent), version > 3);
    expect(await second.take(3), NUMBERS.slice(0, 3).map((number) => [at, number, 1, false]));
  },
  async shared() {
    const at = `${topic}/shared`;
    const members = [await open("member0"), await open("member1")];
    for (const member of members) await member.subscribe(`$share/group/${at}`, 1);
    const sender = await open("dealer");
    for (const number of NUMBERS) await sender.publish(at, number, 1);
    const found = await Promise.all(members.map((member) => member.take(5)));
    expect(found.flat().map((one) => one[1]).sort(), NUMBERS);
  },
};

const release = createRequire(import.meta.url)("mqtt/package.json").version;
say({ client: "MQTT.js", version: release });
for (const [name, check] of Object.entries(checks)) {
  if (name === "shared" && version < 5) continue;
  try {
    await check();
    while (peers.length) await peers.pop().close();
    say({ check: name, ok: true });
  } catch (error) {
    say({ check: name, ok: false, why: String(error.message ?? error) });
  }
}
process.exit(0);
