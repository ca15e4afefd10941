// Node-RED: its MQTT nodes in flows, over TCP and WebSocket. The runtime is embedded; each check
// deploys a flow of its own.
const { spawn } = require("node:child_process");
const { EventEmitter, once } = require("node:events");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const RED = require("node-red");

const [host, port, version, transport, topic, role] = process.argv.slice(2);
const PATIENCE_MS = 10_000;
const PROBE_MS = 100;
const NUMBERS = [...Array(10).keys()].map(String);
const framed = transport === "websocket";
/** Seen in a capture: three PUBACKs leave, then the first SUBSCRIBE, with which the nodes listen. */
const EARLY =
  "over WebSocket, what a resumed session gets together with CONNACK is acknowledged before its nodes listen";

/** What flows and this program tell each other: `to-NAME`, `from-NAME`, `probe-NAME`. */
const bus = new EventEmitter();
bus.setMaxListeners(0);

const say = (line) => console.log(JSON.stringify(line));

function expect(found, wanted) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`wanted ${b}, got ${a}`);
}

/** The nodes of one client: a broker's configuration, a way in, and a way out for each filter. */
function nodesOf({ name, clean = true, will, subscriptions = [] }) {
  const probe = `${topic}/probe/${name}`;
  const broker = {
    id: `${name}-broker`,
    type: "mqtt-broker",
    broker: framed ? `ws://${host}:${port}/mqtt` : host,
    port: framed ? "" : port,
    clientid: `${topic}-${name}`,
    autoConnect: true,
    autoUnsubscribe: clean,
    usetls: false,
    protocolVersion: version,
    keepalive: "30",
    cleansession: clean,
    sessionExpiry: clean ? "" : "60",
    birthTopic: "",
    closeTopic: "",
    willTopic: will ?? "",
    willPayload: "gone",
    willQos: "1",
    willRetain: "false",
    willMsg: {},
  };
  const sender = {
    id: `${name}-sender`,
    type: "function",
    z: "flow",
    func: "return msg;",
    outputs: 1,
    initialize: `global.get("bus").on("to-${name}", (msg) => node.send(msg));`,
    finalize: `global.get("bus").removeAllListeners("to-${name}");`,
    wires: [[`${name}-out`]],
  };
  const out = { id: `${name}-out`, type: "mqtt out", z: "flow", topic: "", broker: broker.id, wires: [] };
  const told = (kind) => ({
    id: `${name}-${kind}`,
    type: "function",
    z: "flow",
    func: `global.get("bus").emit("${kind}-${name}", msg);`,
    outputs: 0,
    wires: [],
  });
  const ins = [...subscriptions, [probe, 1]].map(([filter, qos], index) => ({
    id: `${name}-in${index}`,
    type: "mqtt in",
    z: "flow",
    topic: filter,
    qos: String(qos),
    datatype: "utf8",
    broker: broker.id,
    nl: false,
    rap: false,
    rh: 0,
    inputs: 0,
    wires: [[filter === probe ? `${name}-probe` : `${name}-from`]],
  }));
  return [broker, sender, out, told("from"), told("probe"), ...ins];
}

const inboxes = new Map();

/** Puts exactly these clients in place of those that were, and returns when all are subscribed. */
async function deploy(...peers) {
  for (const { name } of peers) {
    if (inboxes.has(name)) continue;
    const inbox = [];
    inboxes.set(name, inbox);
    bus.on(`from-${name}`, (msg) => {
      inbox.push([msg.topic, msg.payload, msg.qos, msg.retain]);
      bus.emit(`came-${name}`);
    });
  }
  const flows = [{ id: "flow", type: "tab", label: "checks" }, ...peers.flatMap(nodesOf)];
  await RED.runtime.flows.setFlows({ deploymentType: "full", flows: { flows } });
  for (const { name } of peers) await subscribed(name);
}

/** A probe came back: what was subscribed before it is in force. */
async function subscribed(name) {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const knock = () => publish(name, `${topic}/probe/${name}`, "?", 1);
  const knocking = setInterval(knock, PROBE_MS);
  await once(bus, `probe-${name}`, { signal }).finally(() => clearInterval(knocking));
}

function publish(name, at, payload, qos, retain = false) {
  bus.emit(`to-${name}`, { topic: at, payload, qos, retain });
}

async function take(name, count) {
  const inbox = inboxes.get(name);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  while (inbox.length < count) await once(bus, `came-${name}`, { signal });
  return inbox.splice(0, count);
}

const echo = (qos) => async () => {
  const [name, at] = [`qos${qos}`, `${topic}/qos${qos}`];
  await deploy({ name, subscriptions: [[at, qos]] });
  for (const number of NUMBERS) publish(name, at, number, qos);
  expect(await take(name, 10), NUMBERS.map((number) => [at, number, qos, false]));
};

/** This program again in another role; it is killed when it says that it has done its part. */
async function meanwhile(part) {
  const other = spawn(process.execPath, [...process.argv.slice(1), part], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  await once(other.stdout, "data", { signal: AbortSignal.timeout(2 * PATIENCE_MS) });
  other.kill("SIGKILL");
}

const roles = {
  leave: () => deploy({ name: "leaver", will: `${topic}/will` }),
  async send() {
    await deploy({ name: "sender" });
    for (const number of NUMBERS.slice(0, 3)) publish("sender", `${topic}/resume`, number, 1);
    await subscribed("sender"); // a probe behind them
  },
};

const checks = {
  connect: () => deploy({ name: "connect" }),
  qos0: echo(0),
  qos1: echo(1),
  qos2: echo(2),
  async retained() {
    const at = `${topic}/retained`;
    await deploy({ name: "keeper" });
    publish("keeper", at, "kept", 1, true);
    await subscribed("keeper"); // a probe behind it
    await deploy({ name: "keeper" }, { name: "retained", subscriptions: [[at, 1]] });
    expect(await take("retained", 1), [[at, "kept", 1, true]]);
    publish("keeper", at, "", 1, true);
    expect(await take("retained", 1), [[at, "", 1, false]]);
  },
  async will() {
    const at = `${topic}/will`;
    await deploy({ name: "watcher", subscriptions: [[at, 1]] });
    await meanwhile("leave");
    expect(await take("watcher", 1), [[at, "gone", 1, false]]);
  },
  async resume() {
    const at = `${topic}/resume`;
    await deploy({ name: "resume", clean: false, subscriptions: [[at, 1]] });
    // Nodes that are taken out of a flow unsubscribe; those of a flow that stops do not.
    await RED.runtime.flows.setState({ state: "stop" });
    await meanwhile("send");
    await RED.runtime.flows.setState({ state: "start" });
    expect(await take("resume", 3), NUMBERS.slice(0, 3).map((number) => [at, number, 1, false]));
  },
  async shared() {
    const at = `${topic}/shared`;
    const subscriptions = [[`$share/group/${at}`, 1]];
    const members = ["member0", "member1"];
    await deploy(...members.map((name) => ({ name, subscriptions })), { name: "dealer" });
    for (const number of NUMBERS) publish("dealer", at, number, 1);
    const found = await Promise.all(members.map((name) => take(name, 5)));
    expect(found.flat().map((one) => one[1]).sort(), NUMBERS);
  },
};

async function main() {
  const userDir = fs.mkdtempSync(path.join(os.tmpdir(), "node-red-"));
  process.on("exit", () => fs.rmSync(userDir, { recursive: true, force: true }));
  RED.init(http.createServer(), {
    userDir,
    flowFile: "flows.json",
    httpAdminRoot: false,
    httpNodeRoot: false,
    credentialSecret: false,
    functionGlobalContext: { bus },
    logging: { console: { level: "off" } },
    telemetry: { enabled: false },
    runtimeState: { enabled: true },
  });
  await RED.start();
  await RED.runtime.flows.getFlows({}); // they have been read: now they can be replaced
  if (role) {
    await roles[role]();
    say(role);
    return;
  }
  say({ client: "Node-RED", version: RED.version() });
  for (const [name, check] of Object.entries(checks)) {
    if (name === "shared" && version !== "5") continue;
    if (name === "resume" && framed) {
      say({ check: name, na: EARLY });
      continue;
    }
    try {
      await check();
      await deploy();
      say({ check: name, ok: true });
    } catch (error) {
      say({ check: name, ok: false, why: String(error.message ?? error) });
    }
  }
  process.exit(0);
}

main();
