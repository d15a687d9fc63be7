#!/usr/bin/env node
import launcher from '../dist/cjs/tardis-machine/launcher.js';

const program = launcher.prepare();
if (program) await import(program);
