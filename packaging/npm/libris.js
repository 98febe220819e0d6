#!/usr/bin/env node
// Starts the `libris` binary of the package for this platform, which npm installed as an optional dependency.
'use strict';
const { spawn } = require('node:child_process');

function binary() {
  const name = `libris-${process.platform}-${process.arch}`;
  const file = process.platform === 'win32' ? 'libris.exe' : 'libris';
  for (const candidate of [name, `${name}-musl`]) {
    try {
      return require.resolve(`${candidate}/bin/${file}`);
    } catch {
      // Not installed: the next one.
    }
  }
  console.error(`error: the package \`${name}\` is not installed`);
  console.error('hint: install without `--omit=optional`; if there is no such package, this platform is not supported yet');
  process.exit(1);
}

const child = spawn(binary(), process.argv.slice(2), { stdio: 'inherit', windowsHide: true });
child.on('error', error => {
  console.error(`error: could not start libris: ${error.message}`);
  process.exit(1);
});
// Whoever stops this process means the server. A terminal sends Ctrl-C to both, and the server decides when to end.
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGQUIT']) {
  process.on(signal, () => child.kill(signal));
}
process.on('SIGINT', () => {
  if (!process.stdin.isTTY) child.kill('SIGINT');
});
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
