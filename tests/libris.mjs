// Starts the built binary for a test and makes sure it stops again.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';

export const bin = process.env.LIBRIS_BIN;
if (!existsSync(bin)) throw new Error(`no binary at LIBRIS_BIN=${bin}\nhint: cargo build`);

/** Serves `args` over HTTP on a free port; `stop()` ends the process and waits for it. */
export const serveHttp = args => start(bin, ['serve', ...args, '--http', '127.0.0.1:0']);

/** Starts a program that says where it listens, as `serve` does. */
export async function start(program, args) {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const gone = once(child, 'close');
  const stop = async () => {
    child.kill();
    await gone;
  };
  // An abandoned server would outlive a test run that crashes.
  process.once('exit', () => child.kill('SIGKILL'));
  const said = [];
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    const url = line.match(/listening on (http:\S+)/)?.[1];
    if (url) {
      child.stderr.resume();
      const kill = async () => {
        child.kill('SIGKILL');
        await gone;
      };
      return { url, stop, kill };
    }
  }
  throw new Error(`${program} did not start:\n${said.join('\n')}`);
}
