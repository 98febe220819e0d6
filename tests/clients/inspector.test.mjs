// MCP Inspector's command line, one process per request, in both eras.
import { execFile } from 'node:child_process';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LEGACY, MODERN, visits } from './library.mjs';

const inspector = fileURLToPath(import.meta.resolve('@modelcontextprotocol/inspector/clients/launcher/build/index.js'));

// The Inspector keeps its state in the home folder, which is not ours to write to.
const env = { ...process.env, HOME: tmpdir() };

for (const [era, revision] of [['legacy', LEGACY], ['modern', MODERN]]) {
  visits(`@modelcontextprotocol/inspector --cli, ${era}`, {
    revision,
    connect({ url, command, args }) {
      const target = url ? [url] : [command, ...args];
      const ask = async (method, ...options) => {
        const asked = [inspector, '--cli', '--protocol-era', era, '--format', 'json', '--method', method, ...options, '--', ...target];
        const { stdout } = await promisify(execFile)(process.execPath, asked, { env, maxBuffer: 1 << 24 });
        return JSON.parse(stdout).result;
      };
      return {
        pagesItself: true,
        hidesCodes: true,
        revision: async () => (await ask('initialize')).protocolVersion,
        list: () => ask('resources/list'),
        read: async uri => (await ask('resources/read', '--uri', uri)).contents,
        tools: async () => (await ask('tools/list')).tools,
        call: (name, args) => {
          const given = Object.entries(args).flatMap(([key, value]) => ['--tool-arg', `${key}=${value}`]);
          return ask('tools/call', '--tool-name', name, ...given);
        },
        prompts: async () => (await ask('prompts/list')).prompts,
        prompt: async (name, args) => {
          const given = Object.entries(args).flatMap(([key, value]) => ['--prompt-args', `${key}=${value}`]);
          return (await ask('prompts/get', '--prompt-name', name, ...given)).messages;
        },
        templates: async () => (await ask('resources/templates/list')).resourceTemplates,
        errorOf: failure => JSON.parse(failure.stderr).error,
      };
    },
  });
}
