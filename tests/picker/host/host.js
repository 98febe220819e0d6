// A chat in a page: the bridge and the client of the reference packages, and the conversation around them.
import { AppBridge, PostMessageTransport, RESOURCE_MIME_TYPE, buildAllowAttribute, getToolUiResourceUri, isToolVisibilityAppOnly } from '@modelcontextprotocol/ext-apps/app-bridge';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const EXTENSION = 'io.modelcontextprotocol/ui';
const received = { contexts: [], messages: [], links: [], files: [], heights: [], modes: [] };
let bridge;
let client;

/** Connects to the server, as a host that shows apps or as one that does not. */
async function connect({ mode, showsApps = true }) {
  const extensions = showsApps ? { [EXTENSION]: { mimeTypes: [RESOURCE_MIME_TYPE] } } : {};
  client = new Client({ name: 'chat', version: '1' }, { capabilities: { extensions }, versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL('/mcp', location.href)));
  const { tools } = await client.listTools();
  return { tools, capabilities: client.getServerCapabilities(), forModels: tools.filter(tool => !isToolVisibilityAppOnly(tool)).map(({ name }) => name) };
}

/** Calls a tool and shows its app, as the specification says: in a frame of another origin, with the policy for apps. */
async function openApp({ name, given = {}, proxy, context, capabilities }) {
  const { tools } = await client.listTools();
  const uri = getToolUiResourceUri(tools.find(tool => tool.name === name));
  const { contents: [{ text: html, mimeType, _meta }] } = await client.readResource({ uri });
  if (mimeType !== RESOURCE_MIME_TYPE) throw new Error(`the app has the type ${mimeType}`);
  const frame = document.createElement('iframe');
  frame.title = 'App';
  frame.sandbox = 'allow-scripts allow-same-origin';
  frame.allow = buildAllowAttribute(_meta?.ui?.permissions);
  bridge = new AppBridge(client, { name: 'chat', version: '1' }, capabilities, { hostContext: { ...context, toolInfo: { tool: tools.find(tool => tool.name === name) } } });
  bridge.onsizechange = ({ height }) => {
    received.heights.push(height);
    frame.style.height = `${height}px`;
  };
  bridge.onupdatemodelcontext = async params => {
    received.contexts.push(params);
    return {};
  };
  bridge.onmessage = async params => {
    received.messages.push(params);
    return {};
  };
  bridge.onopenlink = async ({ url }) => {
    received.links.push(url);
    return {};
  };
  bridge.ondownloadfile = async ({ contents }) => {
    received.files.push(...contents);
    return {};
  };
  bridge.onrequestdisplaymode = async ({ mode }) => {
    received.modes.push(mode);
    frame.classList.toggle('full', mode === 'fullscreen');
    return { mode };
  };
  const initialized = new Promise(resolve => { bridge.oninitialized = resolve; });
  const ready = new Promise(resolve => { bridge.onsandboxready = resolve; });
  const connected = new Promise(resolve => frame.addEventListener('load', resolve, { once: true }));
  frame.src = proxy;
  document.getElementById('app').replaceChildren(frame);
  const transport = new PostMessageTransport(frame.contentWindow, frame.contentWindow);
  await bridge.connect(transport);
  await Promise.all([ready, connected]);
  await bridge.sendSandboxResourceReady({ html, csp: _meta?.ui?.csp, permissions: _meta?.ui?.permissions });
  await initialized;
  await bridge.sendToolInput({ arguments: given });
  const result = await client.callTool({ name, arguments: given });
  await bridge.sendToolResult(result);
  return { result, app: bridge.getAppVersion(), modes: bridge.getAppCapabilities() };
}

Object.assign(window, {
  connect,
  openApp,
  received,
  setContext: context => bridge.setHostContext(context),
  teardown: () => bridge.teardownResource({}),
});
