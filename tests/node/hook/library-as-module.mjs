// The library as an ES module, whose exports nobody can change.
import library from './library.cjs';

export const { replayNormalized, streamNormalized, combine } = library;
