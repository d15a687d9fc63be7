// The server as ES modules, with WebSockets by `ws`.
import cluster from 'node:cluster';
import { once } from 'node:events';
import http from 'node:http';
import * as library from 'tardis-dev';
import { WebSocketServer } from 'ws';
import server from '../dist/server.cjs';

async function serveWebSockets(port, open) {
  const httpServer = http.createServer((_, response) => response.writeHead(426).end());
  const webSockets = new WebSocketServer({ server: httpServer, perMessageDeflate: false });
  webSockets.on('connection', (socket, request) => {
    const connection = {
      closed: false,
      send: (text) => {
        if (socket.readyState !== 1) return false;
        socket.send(text, { binary: false, compress: false });
        return socket.bufferedAmount === 0;
      },
      getBufferedAmount: () => socket.bufferedAmount,
      end: (code, reason = '') => socket.close(code, Buffer.from(reason).subarray(0, 120).toString()),
    };
    socket.on('close', () => {
      connection.closed = true;
    });
    const { pathname, search } = new URL(request.url, 'http://localhost');
    open(connection, pathname, search.slice(1));
  });
  httpServer.listen(port, '127.0.0.1');
  await once(httpServer, 'listening');
}

if (process.argv[3] === '--cluster-mode' && cluster.isPrimary) {
  for (let count = 0; count < 2; count += 1) cluster.fork();
} else {
  await server.serve(Number(process.argv[2]), library, serveWebSockets);
}
if (process.argv[3] === '--own-handler') {
  process.on('SIGTERM', () => {
    console.log('the handler of the server');
    process.exit(7);
  });
}
