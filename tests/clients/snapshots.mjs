// What every command of Libris prints on a server, at 80 columns, compared with a file in `snapshots/`.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { bin } from '../libris.mjs';

/** Runs a command of Libris at 80 columns: its exit code and what it printed. */
export function libris(args, target) {
  const command = [...args, ...(typeof target === 'string' ? [target] : ['--', ...target])];
  const env = { ...process.env, COLUMNS: '80', LIBRIS_LOG: 'error', NO_COLOR: '1' };
  return new Promise(resolve => {
    execFile(bin, command, { env, maxBuffer: 1 << 26, timeout: 120_000 }, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, stderr }),
    );
  });
}

/** The output without what differs from run to run: times, rates, and the random marks around passages. */
function steady(text) {
  return text
    .replace(/^(target +).*$/gm, '$1TARGET')
    .replace(/^connected +[\d.]+ m?s, with a list of [\d,]+ /gm, 'connected  TIME, with a list of NUMBER ')
    .replace(/^(p50|p90|p99|longest)( +)[\d.]+ m?s$/gm, '$1$2TIME')
    .replace(/^rate +[\d,]+ reads per second/gm, 'rate       NUMBER reads per second')
    .replace(/\b\d{1,2}:\d\d:\d\d\s[AP]M\b/g, 'TIME')
    .replace(/\b[0-9a-f]{16}\b/g, 'MARK');
}

/** Only these commands print long lines: `--json` is for scripts, and `read`, `bundle` and prompts print texts as they are. */
const printsAsIs = args => args.includes('--json') || ['read', 'bundle'].includes(args[0]) || args.includes('--get');

/** The name of a prompt and its arguments, in brackets unless they are required. */
const CALL = /^[\w-]+( [\w-]+| \[[\w-]+\])+$/;

/** Whether a line fits, or is a URI or the call of a prompt, which are never cut. */
const fits = (line, command) => [...line].length <= 80 || (command === 'prompts' && CALL.test(line)) || /^\S+$/.test(line.trim()) || /^[-\s\w:./;=]{0,40}\s\S+:\S+$/.test(line);

/**
 * Runs the commands one after the other and compares all that they print with `snapshots/NAME.txt`. With
 * UPDATE_SNAPSHOTS=1, writes the file instead.
 */
export async function printsAsBefore(name, target, commands) {
  let transcript = '';
  for (const args of commands) {
    const { code, stdout, stderr } = await libris(args, target);
    if (!printsAsIs(args)) {
      for (const line of stdout.split('\n')) assert.ok(fits(line, args[0]), `${args.join(' ')} prints a line that is too long: ${line}`);
    }
    const shown = args.map(word => (/^[\w:/.+-]+$/.test(word) ? word : `'${word}'`)).join(' ');
    const printed = steady(`${stdout}${stdout && !stdout.endsWith('\n') ? '\n' : ''}${stderr}`);
    transcript += `$ libris ${shown}\n${printed}exit code ${code}\n\n`;
  }
  const file = fileURLToPath(new URL(`snapshots/${name}.txt`, import.meta.url));
  if (process.env.UPDATE_SNAPSHOTS) return writeFileSync(file, transcript);
  assert.ok(existsSync(file), `there is no ${file}; run with UPDATE_SNAPSHOTS=1 to write it`);
  assert.equal(transcript, readFileSync(file, 'utf8'));
}
