// The programs that the picker shows in **Details** read a resource. `cargo test` compiles and runs the one in Rust.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { bin, serveHttp } from '../libris.mjs';
import { snippets } from '../../crates/web/page/snippets.js';

const tests = join(import.meta.dirname, '..');
const URI = "file:///docs/it's%20here.md";

/** How a program in each language is run. */
const RUN = {
  curl: code => ['sh', '-c', code],
  TypeScript: code => [process.execPath, '--input-type=module', '--eval', code],
  Python: code => [join(tests, '../target/clients/fastmcp/bin/python'), '-c', code],
};

const base = mkdtempSync(join(tmpdir(), 'libris-samples-'));
const docs = join(base, 'docs');

for (const needsKey of [false, true]) {
  describe(needsKey ? 'with a key' : 'without a key', () => {
    let server;
    let key = '';
    before(async () => {
      execFileSync('mkdir', ['-p', docs]);
      writeFileSync(join(docs, "it's here.md"), '# The words that are read\n');
      const keys = join(base, 'keys.toml');
      if (needsKey) key = execFileSync(bin, ['key', 'add', 'samples', '--keys', keys], { encoding: 'utf8' }).trim();
      server = await serveHttp([docs, ...(needsKey ? ['--keys', keys] : [])]);
    });
    after(async () => {
      await server?.stop();
      if (needsKey) rmSync(base, { recursive: true });
    });

    for (const [language, command] of Object.entries(RUN)) {
      test(`the program in ${language} reads the resource, and ends`, async () => {
        const [program, ...words] = command(snippets(server.url, URI, needsKey)[language]);
        const env = { ...process.env, KEY: key };
        const { stdout } = await promisify(execFile)(program, words, { cwd: tests, env, timeout: 60_000 });
        assert.match(stdout, /The words that are read/);
      });
    }
  });
}
