// A server that answers as tardis-machine does: HTTP in blocks of 32 lines on the given port, WebSocket with one
// message a frame on the next one. `library` stands for tardis-dev; `serveWebSockets(port, open)` calls
// `open(connection, path, query)` for every connection.
'use strict';

const { once } = require('node:events');
const http = require('node:http');
const { setTimeout: wait } = require('node:timers/promises');

const LINES_A_WRITE = 32;

exports.serve = async (port, library, serveWebSockets) => {
  const server = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://localhost');
    if (pathname === '/replay-normalized') {
      void replayOverHttp(library, response, searchParams.get('options'));
    } else if (pathname === '/replay') {
      response.end('{"type":"raw"}\n');
    } else {
      response.writeHead(404).end();
    }
  });
  server.timeout = 0;
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  await serveWebSockets(port + 1, (connection, path, query) => {
    const options = new URLSearchParams(query).get('options');
    const route = path.toLowerCase();
    if (route === '/ws-replay-normalized') void replayOverWebSocket(library, connection, options);
    else if (route === '/ws-stream-normalized') void stream(library, connection, options);
    else connection.end(1008);
  });
  console.log('ready');
};

async function replayOverHttp(library, response, text) {
  try {
    response.setHeader('Content-Type', 'application/x-json-stream');
    let lines = [];
    for await (const message of replayed(library, list(JSON.parse(text)))) {
      lines.push(JSON.stringify(message));
      if (lines.length < LINES_A_WRITE) continue;
      const isRoom = response.write(`${lines.join('\n')}\n`);
      lines = [];
      if (!isRoom) await once(response, 'drain');
    }
    if (lines.length) response.write(`${lines.join('\n')}\n`);
    response.end('');
  } catch (error) {
    if (response.writableEnded) return;
    response.statusCode = error.status ?? 500;
    response.end(
      JSON.stringify({ responseText: error.responseText, message: error.message, url: error.url }),
    );
  }
}

async function replayOverWebSocket(library, connection, text) {
  try {
    for await (const message of replayed(library, list(JSON.parse(text)))) {
      if (connection.closed) return;
      if (connection.send(JSON.stringify(message))) continue;
      while (!connection.closed && connection.getBufferedAmount() > 0) await wait(1);
    }
    connection.end(1000, 'finished');
  } catch (error) {
    if (!connection.closed) connection.end(1011, String(error));
  }
}

async function stream(library, connection, text) {
  let messages;
  try {
    const requested = list(JSON.parse(text));
    const errorsInARow = {};
    const streams = requested.map((options) =>
      library.streamNormalized({
        ...options,
        withDisconnectMessages: true,
        onError: (error) => {
          const { exchange } = options;
          errorsInARow[exchange] = (errorsInARow[exchange] ?? 0) + 1;
          if (!options.withErrorMessages || connection.closed) return;
          const facts = { details: error.message, subSequentErrorsCount: errorsInARow[exchange] };
          connection.send(JSON.stringify({ type: 'error', exchange, localTimestamp: new Date(), ...facts }));
        },
      }),
    );
    messages = streams.length === 1 ? streams[0] : library.combine(...streams);
    const isWanted = wanted(requested);
    for await (const message of messages) {
      if (connection.closed) return;
      if (!isWanted(message)) continue;
      connection.send(JSON.stringify(message));
      if (message.type !== 'disconnect') errorsInARow[message.exchange] = 0;
    }
    connection.end(1000, 'finished');
  } catch (error) {
    if (!connection.closed) connection.end(1011, String(error));
  } finally {
    await messages?.return?.();
  }
}

async function* replayed(library, requested) {
  const replays = requested.map((options) => library.replayNormalized(options));
  const isWanted = wanted(requested);
  for await (const message of replays.length === 1 ? replays[0] : library.combine(...replays)) {
    if (isWanted(message)) yield message;
  }
}

function wanted(requested) {
  const asksForDisconnects = requested.some((options) => options.withDisconnectMessages);
  const types = new Set(requested.flatMap((options) => options.dataTypes));
  return ({ type }) => (type === 'disconnect' ? asksForDisconnects : types.has(type));
}

function list(options) {
  return Array.isArray(options) ? options : [options];
}
