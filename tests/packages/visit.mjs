// A folder to serve, an environment as empty as that of a new user, and a client that visits what was installed.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

export const packages = process.env.LIBRIS_PACKAGES;

/** The only package whose name fits. */
export function packed(pattern) {
  const found = readdirSync(packages).filter(name => pattern.test(name));
  assert.equal(found.length, 1, `${pattern}: ${found}`);
  return join(packages, found[0]);
}

const which = program => dirname(execFileSync('which', [program], { encoding: 'utf8' }).trim());

/** An empty folder with `docs/start.md` beside it, and an environment without anything of ours. */
export function newUser() {
  const home = mkdtempSync(join(tmpdir(), 'libris-packages-'));
  const folder = join(home, 'project');
  mkdirSync(join(folder, 'docs'), { recursive: true });
  writeFileSync(join(folder, 'docs', 'start.md'), '# Start\n');
  const path = [...new Set([which('npm'), which('node'), which('python3'), '/usr/bin', '/bin'])].join(':');
  const env = { HOME: home, PATH: path, npm_config_cache: join(home, 'npm'), npm_config_update_notifier: 'false' };
  const run = (program, ...args) => execFileSync(program, args, { cwd: folder, env, encoding: 'utf8', stdio: 'pipe' });
  return { home, folder, env, run, remove: () => rmSync(home, { recursive: true, force: true }) };
}

/** Lets a client list and read what the command serves, which is the folder `docs`. */
export async function visit(user, command, args = ['serve', 'docs', '--stdio']) {
  const client = new Client({ name: 'libris-tests', version: '0' });
  const transport = new StdioClientTransport({ command, args, cwd: user.folder, env: user.env, stderr: 'inherit' });
  await client.connect(transport);
  try {
    const { resources } = await client.listResources();
    const names = resources.map(({ uri }) => uri).filter(uri => uri.startsWith('file:'));
    assert.deepEqual(names, ['file:///docs/', 'file:///docs/start.md']);
    const { contents } = await client.readResource({ uri: 'file:///docs/start.md' });
    assert.equal(contents[0].text, '# Start\n');
  } finally {
    await client.close();
  }
}
