// What the model learns of a selection: where the resources are and what they are called. It reads what it needs by itself.

import { bytes, clean, counted, nameOf, titleOf } from './format.js';

/** The most resources of which the model learns. */
const MOST = 200;

function line(resource) {
  const facts = [titleOf(resource), resource.mimeType, bytes(resource.size)].filter(Boolean).map((fact) => clean(fact, 200));
  return `- ${nameOf(resource)}: ${resource.uri}${facts.length > 0 ? ` (${facts.join(', ')})` : ''}`;
}

/** The selection as text. */
export function selectionText(resources) {
  if (resources.length === 0) return 'The user has no resources selected in the picker.';
  const rest = resources.length - MOST;
  return [`The user has selected ${counted(resources.length, 'resource')} of this server in the picker. Read what you need with \`read_resource\`:`,
    ...resources.slice(0, MOST).map(line),
    ...(rest > 0 ? [`and ${rest} more`] : [])].join('\n');
}

/** The parameters of `ui/update-model-context`, with the kinds of content that the host takes. */
export function contextOf(resources, kinds) {
  const known = resources.slice(0, MOST);
  const content = [{ type: 'text', text: selectionText(resources) }];
  if (kinds.resourceLink) content.push(...known.map((resource) => ({ type: 'resource_link', ...described(resource) })));
  const context = { content };
  if (kinds.structuredContent) context.structuredContent = { selected: known.map(described) };
  return context;
}

function described({ uri, name, title, mimeType, size }) {
  const fields = { uri, name: name ?? nameOf({ uri }), title, mimeType, size };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
