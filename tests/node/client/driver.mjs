// Lets tests in Python use the Node client: takes commands and gives answers as lines of JSON.
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

const built = (name) => import(new URL(`../../../client/node/dist/esm/${name}.js`, import.meta.url));
const { connect, streamIdFor } = await built('index');
const { EventBuffer } = await built('buffer');
const { encode, encodeLines } = await built('encoding');
const { settle } = await built('options');
const { timing } = await built('timing');

const publishers = new Map();
const buffers = new Map();
let warnings = [];
let unseen = [];

const commands = {
  connect(id, address, options, listeners) {
    const publisher = connect(address, options);
    publishers.set(id, publisher);
    for (const [event, mayThrow] of Object.entries(listeners)) {
      publisher.on(event, (...args) => {
        answer({ told: id, event, args });
        if (mayThrow) throw new Error('as the test wants it');
      });
    }
    return publisher.streamId;
  },

  publish: (id, events) => events.map((event) => publishers.get(id).publish(event)),

  async publishWait(id, events) {
    const accepted = [];
    for (const event of events) accepted.push(await publishers.get(id).publishWait(event));
    return accepted;
  },

  publishLines: (id, block, count) => publishers.get(id).publishLines(block, count),
  skip: (id, count) => publishers.get(id).skip(count),
  flush: (id, ...timeout) => publishers.get(id).flush(...timeout),
  close: (id, timeout, ended) => publishers.get(id).close(timeout ?? undefined, { ended }),

  async write(id, events) {
    for (const event of events) await publishers.get(id).write(event);
  },

  async pipe(id, events, highWaterMark) {
    const publisher = publishers.get(id);
    let askedFor = 0;
    function* source() {
      for (const event of events) {
        if (!publisher.stats.acknowledged) askedFor += 1;
        yield event;
      }
    }
    await pipeline(Readable.from(source(), { highWaterMark: 1 }), publisher.writable({ highWaterMark }));
    return askedFor;
  },

  stats: (id) => publishers.get(id).stats,

  inside(id) {
    const { connection, window } = publishers.get(id).session;
    const { isOpen, trouble } = connection;
    return { isOpen, trouble, sent: window.sent, sentEvents: window.sentEvents };
  },

  streamIdFor,

  encode(event) {
    const { data, isJson } = encode(event);
    return [Buffer.from(data).toString('base64'), isJson];
  },

  settle: (address, options) => settle(address, options),

  timing(values) {
    const before = { ...timing };
    Object.assign(timing, values);
    return before;
  },

  buffer(id, options) {
    const told = { woken: 0, rooms: 0 };
    const owner = {
      wake() {
        told.woken += 1;
      },
      onRoom() {
        told.rooms += 1;
      },
    };
    buffers.set(id, { buffer: new EventBuffer(settle('127.0.0.1:1', options), owner), told });
  },

  bufferAdd: (id, event, isJson) =>
    buffers.get(id).buffer.add({ data: event, isJson, count: 1, size: event.length + Number(isJson) }),
  bufferAddLines: (id, block, count) => buffers.get(id).buffer.add(encodeLines(block, count)),

  bufferTake(id, events, size, mayCut) {
    const batch = buffers.get(id).buffer.take(events, size, mayCut);
    if (!batch) return null;
    const { firstPosition, isJson = null, size: bytes } = batch;
    const items = batch.items.map(({ data }) => Buffer.from(data).toString('base64'));
    const marked = batch.items.map((item) => isJson === null && item.isJson);
    return { firstPosition, isJson, items, marked, size: bytes };
  },

  bufferCall(id, method, ...args) {
    buffers.get(id).buffer[method](...args);
  },

  bufferIsWorthWaiting: (id, size) =>
    buffers.get(id).buffer.isWorthWaiting({ data: '', isJson: false, count: 1, size }),

  bufferState(id) {
    const { buffer, told } = buffers.get(id);
    const { accepted, events, bytes, oldestPosition, drops } = buffer;
    return { ...told, accepted, events, bytes, oldestPosition, dropped: drops.total, reason: drops.reason };
  },

  /** What keeps the process alive. */
  resources: () => process.getActiveResourcesInfo().sort(),

  takeWarnings() {
    const taken = warnings;
    warnings = [];
    return taken;
  },

  takeUnseen() {
    const taken = unseen;
    unseen = [];
    return taken;
  },
};

process.on('warning', (warning) => {
  if (warning.name === 'BronzeSidecarWarning') warnings.push(warning.message);
  else unseen.push(String(warning));
});
process.on('uncaughtException', (error) => unseen.push(String(error.stack)));

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, name, args } = JSON.parse(line, revive);
  try {
    answer({ id, result: (await commands[name](...args)) ?? null });
  } catch (error) {
    const { message, unacknowledged, dropped, failed, failures, reason, code } = error;
    const undelivered = { unacknowledged, dropped, failed, failures, reason };
    answer({ id, error: { name: error.name, message, code, ...undelivered } });
  }
});

function answer(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

/** What JSON cannot say: bytes, odd numbers and nothing at all. */
function revive(_key, value) {
  if (typeof value !== 'object' || value === null) return value;
  if ('$bytes' in value) return Buffer.from(value.$bytes, 'base64');
  if ('$number' in value) return Number(value.$number);
  if ('$big' in value) return BigInt(value.$big);
  return value;
}
