// Builds dist/esm and dist/cjs from the same sources. With --if-missing, only where there is no complete build.
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

// Written last, so it is only there after a complete build.
const LAST = 'dist/cjs/package.json';
const COMPILER = 'node_modules/.bin/tsc';

process.chdir(fileURLToPath(new URL('.', import.meta.url)));
if (!process.argv.includes('--if-missing') || !existsSync(LAST)) build();

function build() {
  if (!existsSync(COMPILER)) {
    console.error(
      `bronze-sidecar-client: the compiler is not installed; run \`npm ci\` in ${process.cwd()} first.`,
    );
    process.exit(1);
  }
  rmSync('dist', { recursive: true, force: true });
  for (const project of ['tsconfig.esm.json', 'tsconfig.cjs.json']) {
    const { status } = spawnSync(COMPILER, ['--project', project], { stdio: 'inherit' });
    if (status !== 0) process.exit(1);
  }
  // The package itself consists of ES modules.
  writeFileSync(LAST, '{ "type": "commonjs" }\n');
}
