// Builds dist/esm and dist/cjs from the same sources.
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

process.chdir(fileURLToPath(new URL('.', import.meta.url)));
rmSync('dist', { recursive: true, force: true });
for (const project of ['tsconfig.esm.json', 'tsconfig.cjs.json']) {
  const { status } = spawnSync('node_modules/.bin/tsc', ['--project', project], { stdio: 'inherit' });
  if (status !== 0) process.exitCode = 1;
}
// The package itself is of modules.
writeFileSync('dist/cjs/package.json', '{ "type": "commonjs" }\n');
