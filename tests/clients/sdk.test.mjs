// The TypeScript SDK of the handshake era: `@modelcontextprotocol/sdk`.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { LEGACY, LIST_CHANGED, subscriber, visits } from './library.mjs';

visits('@modelcontextprotocol/sdk', {
  revision: LEGACY,
  async connect({ url, ...process }, tell) {
    const client = new Client({ name: 'libris-tests', version: '0' });
    const transport = url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport(process);
    let revision;
    transport.setProtocolVersion = version => (revision = version);
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => tell(params.uri));
    client.setNotificationHandler(ResourceListChangedNotificationSchema, () => tell(LIST_CHANGED));
    await client.connect(transport);
    return {
      revision: () => revision,
      list: cursor => client.listResources({ cursor }),
      read: async uri => (await client.readResource({ uri })).contents,
      tools: async () => (await client.listTools()).tools,
      call: (name, args) => client.callTool({ name, arguments: args }),
      prompts: async () => (await client.listPrompts()).prompts,
      prompt: async (name, args) => (await client.getPrompt({ name, arguments: args })).messages,
      templates: async () => (await client.listResourceTemplates()).resourceTemplates,
      complete: async (uri, name, value) =>
        (await client.complete({ ref: { type: 'ref/resource', uri }, argument: { name, value } })).completion.values,
      follow: subscriber(client),
      close: () => client.close(),
    };
  },
});
