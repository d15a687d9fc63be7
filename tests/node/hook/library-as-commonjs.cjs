// The library as compiled TypeScript exports it: by getters, which nobody can change.
'use strict';

const library = require('./library.cjs');

Object.defineProperty(exports, '__esModule', { value: true });
for (const name of Object.keys(library)) {
  Object.defineProperty(exports, name, { enumerable: true, get: () => library[name] });
}
