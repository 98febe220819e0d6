// What the MCP registry and hosts are told: the bundle, `server.json` with its marks of ownership, and the other recipes.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { mistakes } from './schema.mjs';
import { newUser, packages, packed, visit } from './visit.mjs';

const root = join(import.meta.dirname, '../..');
const digest = path => createHash('sha256').update(readFileSync(path)).digest('hex');

describe('bundle', () => {
  const user = newUser();
  after(user.remove);
  const bundle = join(user.home, 'bundle');
  const mcpb = (...args) => user.run(join(root, 'tests/node_modules/.bin/mcpb'), ...args);

  test('is what its checker expects, and serves the chosen folder', async () => {
    mcpb('unpack', packed(/\.mcpb$/), bundle);
    assert.match(mcpb('validate', join(bundle, 'manifest.json')), /passes/);
    const manifest = JSON.parse(readFileSync(join(bundle, 'manifest.json'), 'utf8'));
    const [[key, asked]] = Object.entries(manifest.user_config);
    assert.deepEqual([asked.type, asked.required], ['directory', true]);
    const { command, args } = manifest.server.mcp_config;
    const filled = args.map(argument => argument.replace(`\${user_config.${key}}`, 'docs'));
    await visit(user, command.replace('${__dirname}', bundle), filled);
    for (const page of ['man/libris-serve.1', 'completions/libris.bash']) assert(existsSync(join(bundle, page)), page);
  });
});

describe('server.json', () => {
  const user = newUser();
  after(user.remove);
  const server = JSON.parse(readFileSync(join(packages, 'server.json'), 'utf8'));
  const of = type => server.packages.find(({ registryType }) => registryType === type);

  test('is valid by the schema of the registry', () => {
    assert.deepEqual(mistakes(server), []);
    assert.deepEqual(Object.keys(server), ['$schema', 'name', 'title', 'description', 'version', 'packages']);
    assert.match(server.version, /^\d+\.\d+\.\d+$/);
  });

  test('would be refused with a mistake', () => {
    const npm = 'packages[0]';
    const wrong = [
      ['', document => delete document.$schema],
      ['', document => (document.$schema = document.$schema.replace('2025-12-11', '2025-07-09'))],
      ['', document => delete document.name],
      ['name', document => (document.name = 'libris')],
      ['name', document => (document.name = `a/${'b'.repeat(199)}`)],
      ['name', document => (document.name = 'a/b/c')],
      ['', document => delete document.description],
      ['description', document => (document.description = '')],
      ['description', document => (document.description = 'x'.repeat(101))],
      ['title', document => (document.title = 'x'.repeat(101))],
      ['', document => delete document.version],
      ['version', document => (document.version = '^1.2.3')],
      ['version', document => (document.version = 1)],
      ['homepage', document => (document.homepage = 'https://libris.test')],
      ['packages', document => (document.packages = {})],
      [npm, document => delete document.packages[0].registryType],
      [npm, document => delete document.packages[0].identifier],
      [npm, document => delete document.packages[0].transport],
      [npm, document => (document.packages[0].transport = { type: 'pipe' })],
      [npm, document => (document.packages[0].version = 'latest')],
      [npm, document => (document.packages[0].version = '')],
      [npm, document => (document.packages[0].fileSha256 = 'A'.repeat(64))],
      [npm, document => (document.packages[0].runtimeHint = ['npx'])],
      [npm, document => (document.packages[0].packageArguments = 'serve')],
      [npm, document => (document.packages[0].packageArguments = [{ type: 'positional' }])],
      [npm, document => (document.packages[0].packageArguments = [{ type: 'named' }])],
      [npm, document => (document.packages[0].packageArguments = [{ value: 'serve' }])],
      [npm, document => (document.packages[0].packageArguments[0].format = 'folder')],
      [npm, document => (document.packages[0].packageArguments[0].isRequired = 'yes')],
      [npm, document => (document.packages[0].packageArguments[0].choices = [1])],
      [npm, document => (document.packages[0].packageArguments[0].variables = { folder: { format: 'path' } })],
      [npm, document => (document.packages[0].packageArguments[0].hint = 'serve')],
    ];
    for (const [place, spoil] of wrong) {
      const document = structuredClone(server);
      spoil(document);
      const found = mistakes(document);
      assert(found.length > 0 && found.every(mistake => mistake.startsWith(`server.${place}`)), `${spoil}: ${found}`);
    }
  });

  test('describes each package completely', () => {
    const types = server.packages.map(({ registryType }) => registryType);
    assert.deepEqual(types, ['npm', 'pypi', 'cargo', 'oci', 'mcpb']);
    for (const one of server.packages) {
      // The tag of an image is its version.
      assert.equal(one.version ?? one.identifier.split(':')[1], server.version);
      assert(!one.runtimeArguments || one.runtimeHint, 'arguments of no runtime');
      assert.equal('fileSha256' in one, one.registryType === 'mcpb');
      for (const argument of [...(one.packageArguments ?? []), ...(one.runtimeArguments ?? [])]) {
        for (const [, name] of (argument.value ?? '').matchAll(/\{(\w+)\}/g)) assert(argument.variables[name], name);
      }
    }
  });

  test('has arguments that start a server', async () => {
    user.run('tar', '-xzf', packed(/-gnu\.tar\.gz$/), '--strip-components=1');
    for (const type of ['npm', 'pypi', 'cargo']) {
      const args = of(type).packageArguments.map(({ value }) => value ?? 'docs');
      await visit(user, join(user.folder, 'libris'), args);
    }
    assert.deepEqual(of('oci').packageArguments.map(({ value }) => value), ['serve', '/data', '--stdio']);
  });

  test('is what the packages say of themselves', () => {
    const manifest = JSON.parse(user.run('tar', '-xzOf', packed(/^libris-\d.*\.tgz$/), 'package/package.json'));
    assert.deepEqual([manifest.name, manifest.version, manifest.mcpName], [of('npm').identifier, server.version, server.name]);
    user.run('python3', '-m', 'zipfile', '-e', packed(/\.whl$/), 'wheel');
    const wheel = readFileSync(join(user.folder, `wheel/libris_mcp-${server.version}.dist-info/METADATA`), 'utf8');
    assert.match(wheel, new RegExp(`^Name: ${of('pypi').identifier}$`, 'm'));
    const mark = new RegExp(`^mcp-name: ${server.name}$`, 'm');
    assert.match(wheel, mark);
    assert.match(readFileSync(join(root, 'crates/cli/README.md'), 'utf8'), mark);
    assert.match(readFileSync(join(root, 'crates/cli/Cargo.toml'), 'utf8'), new RegExp(`^name = "${of('cargo').identifier}"$`, 'm'));
    const container = readFileSync(join(packages, 'container/Containerfile'), 'utf8');
    assert(container.includes(`io.modelcontextprotocol.server.name="${server.name}"`));
    const bundle = packed(/\.mcpb$/);
    assert.equal(of('mcpb').fileSha256, digest(bundle));
    assert.equal(basename(of('mcpb').identifier), basename(bundle));
  });
});

test('the container file copies binaries that are there', () => {
  const container = readFileSync(join(packages, 'container/Containerfile'), 'utf8');
  const architecture = container.match(/^ARG TARGETARCH=(\w+)$/m)[1];
  const [, file] = container.match(/^COPY --chmod=755 (\S+) /m);
  const built = file.replace('${TARGETARCH}', process.arch === 'x64' ? architecture : process.arch);
  assert(existsSync(join(packages, 'container', built)), built);
});

describe('the Homebrew formula', () => {
  const user = newUser();
  after(user.remove);
  const formula = readFileSync(join(packages, 'libris.rb'), 'utf8');

  test('installs what the archive has', () => {
    const archive = packed(/-gnu\.tar\.gz$/);
    assert(formula.includes(`/${basename(archive)}"`) && formula.includes(`sha256 "${digest(archive)}"`));
    const files = user.run('tar', '-tzf', archive).split('\n').map(name => name.split('/').slice(1).join('/'));
    const named = [...formula.matchAll(/install "([^"]+)"/g)].map(([, name]) => name);
    assert.deepEqual(named, ['libris', 'completions/libris.bash', 'completions/_libris', 'completions/libris.fish']);
    for (const name of named) assert(files.includes(name), name);
    assert(files.some(name => /^man\/.*\.1$/.test(name)));
  });
});
