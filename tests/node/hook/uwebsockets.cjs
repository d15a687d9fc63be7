// Stands for uWebSockets.js, which is a binary that no registry has: the same interface, made of `ws`.
'use strict';

const http = require('node:http');
const { WebSocketServer } = require('ws');

exports.DISABLED = 0;

exports.App = () => {
  let behavior;
  return {
    ws(_pattern, given) {
      behavior = given;
      return this;
    },
    listen(port, done) {
      const server = http.createServer((_, response) => response.writeHead(426).end());
      const upgrader = new WebSocketServer({ noServer: true, perMessageDeflate: false });
      server.on('upgrade', (request, socket, head) => {
        // The request can be read during the upgrade only.
        const readable = readableNow(request);
        const response = {
          upgrade: (userData) => {
            upgrader.handleUpgrade(request, socket, head, (webSocket) => {
              open(Object.assign(connectionOf(webSocket), userData), webSocket);
            });
          },
        };
        behavior.upgrade(response, readable.request, {});
        readable.end();
      });
      server.listen(port, '127.0.0.1', () => done({}));
    },
  };

  function open(connection, webSocket) {
    webSocket.on('close', (code, reason) => behavior.close(connection, code, reason));
    behavior.open(connection);
  }
};

function readableNow(request) {
  const [path, query = ''] = request.url.split('?');
  let isOver = false;
  const reading = (value) => {
    if (isOver) throw new Error('uWS.HttpRequest must not be accessed after its handler');
    return value;
  };
  return {
    request: {
      getUrl: () => reading(path),
      getQuery: () => reading(query),
      getHeader: (name) => reading(request.headers[name] ?? ''),
    },
    end: () => {
      isOver = true;
    },
  };
}

function connectionOf(webSocket) {
  return {
    send: (text) => {
      webSocket.send(text);
      return webSocket.bufferedAmount === 0 ? 1 : 0;
    },
    getBufferedAmount: () => webSocket.bufferedAmount,
    // A frame has room for 123 bytes of it.
    end: (code, reason = '') => webSocket.close(code, Buffer.from(reason).subarray(0, 120).toString()),
  };
}
