/** Installs the taps before the server's own code runs. */
import cluster from 'node:cluster';
import { flushAtExit } from './flush-at-exit.js';
import { guarded } from './guard.js';
import { HandOver } from './hand-over.js';
import { tapHttp } from './http-tap.js';
import { tapLibrary } from './library-tap.js';
import { reasonOf } from './publishing-thread.js';
import { ResponseStreams } from './response-stream.js';
import { say } from './say.js';
import { findServer, type ServerPackage } from './server-package.js';
import { readSettings } from './settings.js';
import { tapUWebSockets } from './uws-tap.js';
import { Warnings } from './warnings.js';
import { tapWs } from './ws-tap.js';

const TESTED_VERSIONS = /^(3|18)\./;

/** Starts publishing if this process runs tardis-machine. Whatever goes wrong, the server keeps running. */
export const start = guarded('start', () => {
  // Runs in every process of a cluster; only the primary says what applies to all.
  const sayOnce = cluster.isPrimary ? say : () => undefined;
  const server = findServer(process.argv[1]);
  if (!server) return;
  const { settings, problems } = readSettings(process.env);
  for (const problem of problems) sayOnce(`${problem} Nothing is published.`);
  if (problems.length) return;
  if (!TESTED_VERSIONS.test(server.version)) {
    sayOnce(
      `this client has not been tested with tardis-machine ${server.version}, only with versions 3 and 18.`,
    );
  }
  const warnings = new Warnings(settings.address);
  const handOver = new HandOver(settings, `tardis-machine/${server.version}`, warnings);
  const streams = new ResponseStreams(handOver, { ...settings.meta, app_version: server.version });
  flushAtExit(handOver, warnings, settings.flushMs);
  guarded('HTTP tap', tapHttp)(streams);
  tapWebSockets(server, streams, sayOnce);
  guarded('library tap', tapLibrary)(server, sayOnce);
  sayOnce(`tardis-machine ${server.version} publishes to ${settings.address}.`);
});

function tapWebSockets(server: ServerPackage, streams: ResponseStreams, sayOnce: typeof say): void {
  try {
    if (server.dependencies.has('uWebSockets.js')) tapUWebSockets(server.load('uWebSockets.js'), streams);
    else if (server.dependencies.has('ws')) tapWs(server.load('ws'), streams);
    else throw new Error('it depends on neither ws nor uWebSockets.js');
  } catch (error) {
    sayOnce(
      `the WebSocket routes of tardis-machine ${server.version} are not published: ${reasonOf(error)}.`,
    );
  }
}
