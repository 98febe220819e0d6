// A client for scenarios of the conformance suite that need tools: starts `libris` as a gateway to the server of the
// suite, whose URL is the last argument, and uses all of the server's resources, prompts and tools through it. To the
// server, `libris` is the client.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { bin } from './libris.mjs';

const url = process.argv.at(-1);
const folder = mkdtempSync(join(tmpdir(), 'libris-gateway-'));
const config = join(folder, 'libris.toml');
const upstream = ['[[mcp]]', 'name = "suite"', `url = "${url}"`, 'uris = "prefixed"', 'tools = true', 'prompts = true'];
writeFileSync(config, `${upstream.join('\n')}\n`);
const gateway = spawn(bin, ['serve', '--config', config, '--stdio'], { stdio: ['pipe', 'pipe', 'inherit'] });
const ended = once(gateway, 'close');

const waiting = new Map();
createInterface({ input: gateway.stdout }).on('line', line => {
  const message = JSON.parse(line);
  waiting.get(message.id)?.(message);
});

const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  'io.modelcontextprotocol/clientInfo': { name: 'libris-tests', version: '0' },
};
let id = 0;

/** Sends a request to the gateway, and returns the response, which may be an error. */
async function send(method, params = {}) {
  const response = new Promise(resolve => waiting.set((id += 1), resolve));
  gateway.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } })}\n`);
  return response;
}

/** Sends a request that must succeed. */
async function ask(method, params) {
  const { result, error } = await send(method, params);
  if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
  return result;
}

/** The answer of a user who agrees to everything. */
const agreed = { action: 'accept', content: { confirmed: true } };

/** A value that fits the schema of an argument. */
const example = ({ type }) => ({ number: 2, integer: 2, boolean: true, array: [], object: {} })[type] ?? 'text';

/** Calls a tool. If it needs input first, calls another one meanwhile, and then repeats the call with the input. */
async function call({ name, inputSchema }, other) {
  const given = Object.entries(inputSchema.properties ?? {}).map(([key, schema]) => [key, example(schema)]);
  const params = { name, arguments: Object.fromEntries(given) };
  const first = await ask('tools/call', params);
  if (first.resultType !== 'input_required') return;
  if (other) await ask('tools/call', { name: other.name, arguments: {} });
  const inputResponses = Object.fromEntries(Object.keys(first.inputRequests).map(key => [key, agreed]));
  const state = 'requestState' in first ? { requestState: first.requestState } : {};
  await ask('tools/call', { ...params, inputResponses, ...state });
}

try {
  const { resources } = await ask('resources/list');
  // The suite answers some reads with no contents, which is an error for Libris.
  for (const { uri } of resources.filter(one => one.uri.startsWith('suite+'))) await send('resources/read', { uri });
  const { prompts } = await ask('prompts/list');
  for (const { name } of prompts.filter(one => one.name.startsWith('suite_'))) await send('prompts/get', { name });
  const tools = (await ask('tools/list')).tools.filter(one => one.name.startsWith('suite_'));
  for (const tool of tools) await call(tool, tools.find(other => other !== tool && other.name.endsWith('_unrelated')));
} finally {
  gateway.stdin.end();
  await ended;
  rmSync(folder, { recursive: true });
}
