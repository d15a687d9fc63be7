#!/usr/bin/env node
import Module from 'node:module';
import launcher from '../dist/cjs/tardis-machine/launcher.js';

// As if Node.js had been started with the server's program: it is the main module.
if (launcher.prepare()) Module.runMain();
