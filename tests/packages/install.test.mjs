// Each package is installed from its file alone, used, and removed.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { newUser, packages, packed, visit } from './visit.mjs';

const cargo = readFileSync(join(import.meta.dirname, '../../Cargo.toml'), 'utf8');
const VERSION = cargo.match(/^version = "(.+)"$/m)[1];

/** Man pages and completions are where programs look for them below a folder `share`. */
const hasSharedPages = (share, zsh = 'zsh/site-functions', suffix = '') => {
  for (const name of ['libris', 'libris-serve', 'libris-read']) assert(existsSync(join(share, `man/man1/${name}.1${suffix}`)), name);
  assert.match(readFileSync(join(share, 'bash-completion/completions/libris'), 'utf8'), /^ *complete .* libris$/m);
  assert.match(readFileSync(join(share, zsh, '_libris'), 'utf8'), /^#compdef libris/);
  assert.match(readFileSync(join(share, 'fish/vendor_completions.d/libris.fish'), 'utf8'), /^complete -c libris /m);
};

test('the container has man pages and completions', () => {
  hasSharedPages(join(packages, 'container/share'));
  assert.match(readFileSync(join(packages, 'container/Containerfile'), 'utf8'), /^COPY share \/usr\/share$/m);
});

const installed = (name, install, tests) =>
  describe(name, () => {
    const user = newUser();
    before(() => install(user));
    after(user.remove);
    tests(user);
  });

test('checksums are those of the files', () => {
  const lines = readFileSync(join(packages, 'SHA256SUMS'), 'utf8').trim().split('\n');
  const files = readdirSync(packages).filter(name => name !== 'SHA256SUMS' && name !== 'container');
  assert.deepEqual(lines.map(line => line.split('  ')[1]), files.sort());
  for (const line of lines) {
    const [digest, name] = line.split('  ');
    assert.equal(createHash('sha256').update(readFileSync(join(packages, name))).digest('hex'), digest, name);
  }
});

installed(
  'archive',
  user => user.run('tar', '-xzf', packed(/-gnu\.tar\.gz$/), '--strip-components=1'),
  user => {
    test('serves a folder', () => visit(user, join(user.folder, 'libris')));
    test('has licences, man pages and completions', () => {
      for (const name of ['LICENSE-MIT', 'LICENSE-APACHE', 'README.md']) assert(existsSync(join(user.folder, name)), name);
      const man = readFileSync(join(user.folder, 'man/libris-serve.1'), 'utf8');
      assert.match(man, /^\.TH libris-serve 1/m);
      assert.match(man, /stdio/);
      const complete = 'source completions/libris.bash; complete -p libris; COMP_WORDS=(libris ser); COMP_CWORD=1; _libris libris ser; echo ${COMPREPLY[@]}';
      assert.match(user.run('bash', '-c', complete), /\nserve\n/);
    });
    test('has the time of the commit, not of the build', () => {
      const listed = user.run('tar', '-tvzf', packed(/-gnu\.tar\.gz$/), '--full-time', '--utc');
      assert.deepEqual([...new Set(listed.match(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/g))], ['2026-01-01 00:00:00']);
    });
  },
);

// `--offline`: what is not in the files is not needed.
const npm = ['install', '--offline', '--no-audit', '--no-fund', '--loglevel=error'];

installed(
  'npm',
  user => {
    writeFileSync(join(user.folder, 'package.json'), '{"private":true}');
    user.run('npm', ...npm, packed(/^libris-linux-.*\.tgz$/), packed(/^libris-\d.*\.tgz$/));
  },
  user => {
    test('npx runs it', () => assert.equal(user.run('npx', '--offline', 'libris', '--version'), `libris ${VERSION}\n`));
    test('npx serves a folder', () => visit(user, 'npx', ['--offline', 'libris', 'serve', 'docs', '--stdio']));
    test('has man pages and completions', () => {
      const npx = join(user.folder, 'node_modules/libris');
      assert.match(readFileSync(join(npx, 'completions/_libris'), 'utf8'), /^#compdef libris/);
      const prefix = join(user.home, 'global');
      user.run('npm', ...npm, '--global', '--prefix', prefix, packed(/^libris-linux-.*\.tgz$/), packed(/^libris-\d.*\.tgz$/));
      assert.match(readFileSync(join(prefix, 'share/man/man1/libris-serve.1'), 'utf8'), /^\.TH libris-serve 1/m);
      assert.equal(user.run(join(prefix, 'bin/libris'), '--version'), `libris ${VERSION}\n`);
    });
    test('passes on the exit code', () => {
      const { status, stderr } = spawnSync('node_modules/.bin/libris', ['read', 'file:///docs/none', 'docs'], { cwd: user.folder, env: user.env });
      assert.equal(status, 3);
      assert.match(String(stderr), /^error: /);
    });
    test('ends the server with itself', async () => {
      const args = ['serve', 'docs', '--http', '127.0.0.1:0'];
      // In a process group of its own, which ends with the test even if the wrapper abandons the server.
      const options = { cwd: user.folder, env: user.env, stdio: ['ignore', 'ignore', 'pipe'], detached: true };
      const child = spawn('node_modules/.bin/libris', args, options);
      const gone = once(child, 'exit');
      try {
        let url;
        for await (const line of createInterface({ input: child.stderr })) {
          url = line.match(/listening on (http:\S+)/)?.[1];
          if (url) break;
        }
        assert((await fetch(url, { method: 'POST', body: '{}' })).status >= 400);
        child.kill('SIGTERM');
        await gone;
        await assert.rejects(fetch(url, { method: 'POST', body: '{}' }));
      } finally {
        child.stderr.destroy();
        try {
          process.kill(-child.pid, 'SIGKILL');
        } catch {
          // Nothing of the group is left.
        }
      }
    });
    test('says what is missing without the package of the platform', () => {
      const other = join(user.home, 'other');
      mkdirSync(other);
      execFileSync('npm', [...npm, '--omit=optional', packed(/^libris-\d.*\.tgz$/)], { cwd: other, env: user.env });
      const { status, stderr } = spawnSync('node_modules/.bin/libris', ['--version'], { cwd: other, env: user.env });
      assert.equal(status, 1);
      assert.match(String(stderr), /^error: the package `libris-linux-\w+` is not installed\nhint: /);
    });
  },
);

installed(
  'pip',
  user => {
    user.run('python3', '-m', 'venv', 'venv');
    user.run('venv/bin/pip', 'install', '--quiet', '--disable-pip-version-check', '--no-index', packed(/\.whl$/));
  },
  user => {
    for (const program of ['libris', 'libris-mcp']) {
      test(`${program} serves a folder`, () => visit(user, join(user.folder, 'venv/bin', program)));
    }
    test('the module runs it', () =>
      assert.equal(user.run('venv/bin/python', '-m', 'libris_mcp', '--version'), `libris ${VERSION}\n`));
    test('has man pages and completions', () => hasSharedPages(join(user.folder, 'venv/share')));
    test('is removed whole', () => {
      user.run('venv/bin/pip', 'uninstall', '--yes', '--quiet', 'libris-mcp');
      const left = readdirSync(join(user.folder, 'venv'), { recursive: true }).filter(name => /libris/.test(name));
      assert.deepEqual(left, []);
    });
  },
);

const dpkg = user => ['dpkg', '--force-not-root,depends,bad-path', `--root=${user.home}/system`];

installed(
  'Debian',
  user => {
    // A system of its own: nothing of the machine that runs the tests is replaced.
    mkdirSync(join(user.home, 'system/var/lib/dpkg/info'), { recursive: true });
    mkdirSync(join(user.home, 'system/var/lib/dpkg/updates'));
    writeFileSync(join(user.home, 'system/var/lib/dpkg/status'), '');
    if (process.getuid() === 0) user.run(...dpkg(user), '--install', packed(/\.deb$/));
    else user.run('dpkg-deb', '--extract', packed(/\.deb$/), join(user.home, 'system'));
  },
  user => {
    const program = join(user.home, 'system/usr/bin/libris');
    test('serves a folder', () => visit(user, program));
    test('has man pages and completions', () =>
      hasSharedPages(join(user.home, 'system/usr/share'), 'zsh/vendor-completions', '.gz'));
    test('has what lintian expects', () => {
      const tags = user.run('lintian', '--fail-on=none', '--allow-root', packed(/\.deb$/));
      assert.equal(tags, '');
    });
    test('depends on the packages of its libraries', () => {
      const depends = user.run('dpkg-deb', '--field', packed(/\.deb$/), 'Depends');
      const libraries = [...user.run('ldd', program).matchAll(/=> (\/\S+)/g)].map(([, path]) => path);
      assert(libraries.length > 0);
      for (const library of libraries) {
        const owner = user.run('sh', '-c', `dpkg -S "${library}" 2>/dev/null || dpkg -S "/usr${library}"`).split(':')[0];
        assert(depends.includes(`${owner} (`), `${library} is of ${owner}, not in: ${depends}`);
      }
    });
    test('is removed whole', { skip: process.getuid() !== 0 && 'needs root' }, () => {
      user.run(...dpkg(user), '--purge', 'libris');
      assert(!existsSync(join(user.home, 'system/usr')), 'files are left');
    });
  },
);
