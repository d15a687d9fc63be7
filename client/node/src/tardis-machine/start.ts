/** Puts the taps in place, before the server's own code runs. */
import cluster from 'node:cluster';
import { flushAtExit } from './exit.js';
import { HandOver } from './hand-over.js';
import { tapHttp } from './http-tap.js';
import { tapLibrary } from './library-tap.js';
import { reasonOf } from './publishing-thread.js';
import { findServer, type ServerPackage } from './server-package.js';
import { SessionFactory } from './session.js';
import { readSettings } from './settings.js';
import { tapUWebSockets } from './uws-tap.js';
import { say, Warnings } from './warnings.js';
import { tapWs } from './ws-tap.js';

const TRIED_VERSIONS = /^(3|18)\./;

/** Starts publishing if this process runs tardis-machine. Whatever goes wrong, the server goes on. */
export function start(): void {
  // Every process of a cluster comes here; what is the same for all is said once.
  const sayOnce = cluster.isPrimary ? say : () => undefined;
  try {
    const server = findServer(process.argv[1]);
    if (!server) return;
    const { settings, problems } = readSettings(process.env);
    for (const problem of problems) sayOnce(`${problem} Nothing is published.`);
    if (problems.length) return;
    if (!TRIED_VERSIONS.test(server.version)) {
      sayOnce(`tardis-machine ${server.version} was never tried with this client; versions 3 and 18 were.`);
    }
    const warnings = new Warnings(settings.address);
    const handOver = new HandOver(settings, `tardis-machine/${server.version}`, warnings);
    const sessions = new SessionFactory(handOver, { ...settings.meta, app_version: server.version });
    flushAtExit(handOver, warnings, settings.flushMs);
    tapHttp(sessions);
    tapWebSockets(server, sessions, sayOnce);
    tapLibrary(server, sayOnce);
    sayOnce(`tardis-machine ${server.version} publishes to ${settings.address}.`);
  } catch (error) {
    sayOnce(`the client could not start: ${String(error)}. The server goes on without it.`);
  }
}

function tapWebSockets(server: ServerPackage, sessions: SessionFactory, sayOnce: typeof say): void {
  try {
    if (server.dependencies.has('uWebSockets.js')) tapUWebSockets(server.load('uWebSockets.js'), sessions);
    else if (server.dependencies.has('ws')) tapWs(server.load('ws'), sessions);
    else throw new Error('it depends on neither ws nor uWebSockets.js');
  } catch (error) {
    const version = `tardis-machine ${server.version}`;
    sayOnce(`${version} publishes nothing of its WebSocket routes: ${reasonOf(error)}.`);
  }
}
