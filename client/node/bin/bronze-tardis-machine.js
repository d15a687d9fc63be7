#!/usr/bin/env node
import Module from 'node:module';
import launcher from '../dist/cjs/tardis-machine/launcher.js';

if (process.argv[2] === '--print-require') console.log(launcher.preload);
else if (process.argv[2] === '--print-node-options') console.log(launcher.nodeOptions());
// Runs the server as if Node.js had been started with its program, so it is the main module.
else if (launcher.prepare()) Module.runMain();
