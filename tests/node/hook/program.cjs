// The server as CommonJS modules, with WebSockets by uWebSockets.js.
'use strict';

const library = require('tardis-dev');
const { App, DISABLED } = require('uWebSockets.js');
const { serve } = require('../dist/server.cjs');

function serveWebSockets(port, open) {
  const application = App().ws('/*', {
    compression: DISABLED,
    upgrade: (response, request, context) => {
      const header = (name) => request.getHeader(`sec-websocket-${name}`);
      response.upgrade({ request }, header('key'), header('protocol'), header('extensions'), context);
    },
    open: (connection) => {
      connection.closed = false;
      open(connection, connection.request.getUrl().toLowerCase(), connection.request.getQuery());
    },
    close: (connection) => {
      connection.closed = true;
    },
  });
  return new Promise((resolve) => application.listen(port, resolve));
}

void serve(Number(process.argv[2]), library, serveWebSockets);
