// The library as an ES module, whose exports nobody can change.
import library from './library.cjs';

export const { EXCHANGES, replayNormalized, streamNormalized, combine } = library;
