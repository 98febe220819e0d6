// What is wrong with a `server.json`: the rules of https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json
// for the parts that ours has. No package of npm or PyPI contains the schema, and the tests have no network beyond loopback.
// Parts of the schema that ours does not have (remotes, icons, environment variables, transports other than stdio) are
// reported as unknown fields, so that whoever adds one adds its rules here.

const SCHEMA = 'https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json';

const text = ({ least = 0, most = Infinity, pattern = /^/ } = {}) => (value, at) => {
  if (typeof value !== 'string') return [`${at}: not a string`];
  const length = [...value].length;
  return length >= least && length <= most && pattern.test(value) ? [] : [`${at}: ${JSON.stringify(value)} is not allowed`];
};
const boolean = (value, at) => (typeof value === 'boolean' ? [] : [`${at}: not a boolean`]);
const oneOf = (...values) => (value, at) => (values.includes(value) ? [] : [`${at}: none of ${values}`]);
const list = item => (value, at) => (Array.isArray(value) ? value.flatMap((one, number) => item(one, `${at}[${number}]`)) : [`${at}: not an array`]);
const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value);
const map = item => (value, at) => (isObject(value) ? Object.entries(value).flatMap(([key, one]) => item(one, `${at}.${key}`)) : [`${at}: not an object`]);

/** An object with these fields; those in `required` must be there. */
const object = (fields, required) => (value, at) => {
  if (!isObject(value)) return [`${at}: not an object`];
  const absent = required.filter(field => !(field in value)).map(field => `${at}.${field}: missing`);
  const check = ([field, one]) => (Object.hasOwn(fields, field) ? fields[field](one, `${at}.${field}`) : [`${at}.${field}: unknown`]);
  return [...absent, ...Object.entries(value).flatMap(check)];
};

// A specific version: the registry refuses `latest` and ranges.
const version = text({ least: 1, most: 255, pattern: /^(?!latest$)[^\s^~<>=*|x]+$/ });

const input = {
  choices: list(text()),
  default: text(),
  description: text(),
  format: oneOf('string', 'number', 'boolean', 'filepath'),
  isRequired: boolean,
  isSecret: boolean,
  placeholder: text(),
  value: text(),
};
const argument = { ...input, variables: map(object(input, [])), isRepeated: boolean };
const positional = object({ ...argument, type: oneOf('positional'), valueHint: text() }, ['type']);
const named = object({ ...argument, type: oneOf('named'), name: text() }, ['type', 'name']);
const anyArgument = (value, at) => {
  if (value?.type === 'named') return named(value, at);
  const valued = isObject(value) && !('value' in value || 'valueHint' in value) ? [`${at}: neither \`value\` nor \`valueHint\``] : [];
  return [...valued, ...positional(value, at)];
};

const onePackage = object(
  {
    registryType: text(),
    identifier: text(),
    version,
    fileSha256: text({ pattern: /^[a-f0-9]{64}$/ }),
    runtimeHint: text(),
    runtimeArguments: list(anyArgument),
    packageArguments: list(anyArgument),
    transport: object({ type: oneOf('stdio') }, ['type']),
  },
  ['registryType', 'identifier', 'transport'],
);

const server = object(
  {
    $schema: oneOf(SCHEMA),
    name: text({ least: 3, most: 200, pattern: /^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/ }),
    title: text({ least: 1, most: 100 }),
    description: text({ least: 1, most: 100 }),
    version,
    packages: list(onePackage),
  },
  // The schema requires no `$schema`, but the registry does.
  ['$schema', 'name', 'description', 'version'],
);

/** What the schema does not allow in a `server.json`, each with its place; empty if it is valid. */
export const mistakes = document => server(document, 'server');
