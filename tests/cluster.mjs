// Three replicas of the built binary behind nginx, on a Redis that stores nothing on disk.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { serveHttp } from './libris.mjs';

/** A port that was free a moment ago. */
async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** Waits until something accepts connections on a port, as long as `child` runs. */
async function accepts(port, child) {
  for (let attempt = 0; attempt < 600 && child.exitCode === null; attempt++) {
    const socket = connect(port, '127.0.0.1');
    const open = await Promise.race([once(socket, 'connect').then(() => true), once(socket, 'error').then(() => false)]).catch(() => false);
    socket.destroy();
    if (open) return true;
    await new Promise(done => setTimeout(done, 50));
  }
  return false;
}

/** Starts a program on a free port; another program may take the port first. */
async function onFreePort(program, args) {
  for (let attempt = 0; attempt < 5; attempt++) {
    const port = await freePort();
    const child = spawn(program, args(port), { stdio: ['ignore', 'ignore', 'inherit'] });
    process.once('exit', () => child.kill('SIGKILL'));
    if (await accepts(port, child)) return { port, child };
    child.kill('SIGKILL');
  }
  throw new Error(`${program} did not start`);
}

const nginx = (folder, port, replicas) => `
daemon off;
pid ${folder}/nginx.pid;
error_log stderr error;
events {}
http {
  access_log off;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(kind => `${kind}_temp_path ${folder}/${kind};`).join('\n  ')}
  upstream libris {
    ${replicas.map(({ url }) => `server ${new URL(url).host} max_fails=1 fail_timeout=5s;`).join('\n    ')}
  }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://libris;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_read_timeout 75s;
      proxy_next_upstream error timeout http_503 non_idempotent;
    }
  }
}
`;

/** Waits until a replica is connected to Redis. */
async function ready({ url }) {
  for (let attempt = 0; attempt < 600; attempt++) {
    const answer = await fetch(new URL('/readyz', url)).then(response => response.json()).catch(() => ({}));
    if (answer.status === 'ready') return;
    await new Promise(done => setTimeout(done, 50));
  }
  throw new Error(`${url} is not ready`);
}

/** Serves a configuration file from three replicas; `url` is that of the load balancer. */
export async function serveCluster(config) {
  const folder = mkdtempSync(join(tmpdir(), 'libris-cluster-'));
  const stops = [];
  const stop = async () => {
    for (const end of stops.reverse()) await end();
    rmSync(folder, { recursive: true, force: true });
  };
  const end = child => async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  };
  try {
    const redis = await onFreePort('redis-server', port => ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--dir', folder]);
    stops.push(end(redis.child));
    // Paths in the configuration are relative to its folder.
    const from = dirname(resolve(config));
    for (const name of readdirSync(from).filter(name => name !== basename(config))) symlinkSync(join(from, name), join(folder, name));
    const copy = join(folder, 'cluster.toml');
    writeFileSync(copy, `${readFileSync(config, 'utf8')}\n[cluster]\nredis = "redis://127.0.0.1:${redis.port}"\n`);
    const replicas = [];
    for (let replica = 0; replica < 3; replica++) {
      replicas.push(await serveHttp(['--config', copy]));
      stops.push(replicas.at(-1).stop);
    }
    await Promise.all(replicas.map(ready));
    const state = join(folder, 'nginx');
    mkdirSync(state);
    const balancer = await onFreePort(existsSync('/usr/sbin/nginx') ? '/usr/sbin/nginx' : 'nginx', port => {
      writeFileSync(join(state, 'nginx.conf'), nginx(state, port, replicas));
      return ['-p', state, '-e', 'stderr', '-c', join(state, 'nginx.conf')];
    });
    stops.push(end(balancer.child));
    return { url: `http://127.0.0.1:${balancer.port}/mcp`, replicas, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
