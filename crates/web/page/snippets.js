// How to read a resource from code, in several languages.

/** Programs that read a resource from this server, by the name of their language. */
export function snippets(endpoint, uri, needsKey) {
  const address = JSON.stringify(endpoint);
  const resource = JSON.stringify(uri);
  const quoted = uri.replace(/'/g, "'\\''");
  const body = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'resources/read',
    params: {
      uri,
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientCapabilities': {},
        'io.modelcontextprotocol/clientInfo': { name: 'curl', version: '1' },
      },
    },
  }).replace(/'/g, "'\\''");
  const key = needsKey ? "  -H \"authorization: Bearer $KEY\" \\\n" : '';
  return {
    curl: `curl -s ${endpoint} \\
  -H 'content-type: application/json' \\
  -H 'accept: application/json, text/event-stream' \\
  -H 'mcp-protocol-version: 2026-07-28' \\
  -H 'mcp-method: resources/read' \\
  -H 'mcp-name: ${quoted}' \\
${key}  -d '${body}'`,
    TypeScript: `import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const client = new Client({ name: 'reader', version: '1.0.0' });
await client.connect(new StreamableHTTPClientTransport(new URL(${address})${needsKey ? ', {\n  requestInit: { headers: { authorization: `Bearer ${process.env.KEY}` } },\n}' : ''}));
const { contents } = await client.readResource({ uri: ${resource} });
console.log(contents[0]);
await client.close();`,
    Python: `import asyncio
${needsKey ? 'import os\n' : ''}from fastmcp import Client

async def main():
    async with Client(${address}${needsKey ? ', auth=os.environ["KEY"]' : ''}) as client:
        contents = await client.read_resource(${resource})
        print(contents[0])

asyncio.run(main())`,
    Rust: `use rmcp::ServiceExt;
use rmcp::model::ReadResourceRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
${needsKey ? `use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

let config = StreamableHttpClientTransportConfig::with_uri(${address}).auth_header(std::env::var("KEY")?);
let client = ().serve(StreamableHttpClientTransport::from_config(config)).await?;` : `
let client = ().serve(StreamableHttpClientTransport::from_uri(${address})).await?;`}
let read = client.read_resource(ReadResourceRequestParams::new(${resource})).await?;
println!("{:?}", read.contents);`,
  };
}
