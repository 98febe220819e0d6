// The TypeScript SDK of both eras: `@modelcontextprotocol/client`.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { LEGACY, LIST_CHANGED, MODERN, subscriber, visits } from './library.mjs';

/** How a client comes to be told of exactly the given URIs when a subscription is a stream. */
function listener(client) {
  let stream;
  return async uris => {
    await stream?.close();
    stream = await client.listen({ resourcesListChanged: true, resourceSubscriptions: uris });
    return stream.honoredFilter.resourceSubscriptions ?? [];
  };
}

for (const [mode, revision] of [['legacy', LEGACY], ['auto', MODERN]]) {
  visits(`@modelcontextprotocol/client, ${mode}`, {
    revision,
    async connect({ url, ...process }, tell) {
      const client = new Client({ name: 'libris-tests', version: '0' }, { versionNegotiation: { mode } });
      const transport = url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport(process);
      client.setNotificationHandler('notifications/resources/updated', ({ params }) => tell(params.uri));
      client.setNotificationHandler('notifications/resources/list_changed', () => tell(LIST_CHANGED));
      await client.connect(transport);
      // This client gives the codes of both eras as -32602, so the one that came is taken from the wire.
      let lastError;
      const deliver = transport.onmessage;
      transport.onmessage = (message, extra) => {
        lastError = message.error ?? lastError;
        deliver(message, extra);
      };
      return {
        pagesItself: true,
        errorOf: () => lastError,
        revision: () => client.getNegotiatedProtocolVersion(),
        list: () => client.listResources(),
        read: async uri => (await client.readResource({ uri })).contents,
        tools: async () => (await client.listTools()).tools,
        call: (name, args) => client.callTool({ name, arguments: args }),
        prompts: async () => (await client.listPrompts()).prompts,
        prompt: async (name, args) => (await client.getPrompt({ name, arguments: args })).messages,
        templates: async () => (await client.listResourceTemplates()).resourceTemplates,
        complete: async (uri, name, value) =>
          (await client.complete({ ref: { type: 'ref/resource', uri }, argument: { name, value } })).completion.values,
        follow: revision === MODERN ? listener(client) : subscriber(client),
        close: () => client.close(),
      };
    },
  });
}
