// Runs the official conformance suites against the built binary, against three replicas of it behind a load balancer, against
// a server that is written with `#[resources]` alone, and with the binary as the client.
//
// The suites judge themselves by the lists in `conformance/`: an unlisted failure fails, and so does a
// listed check that passes. Two gaps in that are closed here: a listed check that was never run, and a
// list entry whose id stands for several checks of which only some cannot be run. `skills.py` checks the
// digests of skills against the files.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { serveCluster } from './cluster.mjs';
import { serveHttp, start } from './libris.mjs';

const here = path => fileURLToPath(new URL(path, import.meta.url));

const suites = [
  { suite: 'conformance-0.1', expected: 'expected-0.1.16.yml', options: [] },
  { suite: 'conformance-0.2', expected: 'expected-2025-11-25.yml', options: ['--spec-version', '2025-11-25'] },
  { suite: 'conformance-0.2', expected: 'expected-2026-07-28.yml', options: ['--spec-version', '2026-07-28'] },
];

/** Every check of a finished run, with the name of its scenario. */
function checksIn(results) {
  return readdirSync(results).flatMap(run => {
    const scenario = run.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '');
    return JSON.parse(readFileSync(join(results, run, 'checks.json'), 'utf8')).map(check => ({ scenario, ...check }));
  });
}

const failed = check => check.status === 'FAILURE' || check.status === 'WARNING';

/** Splits the failures of `checks` by the list, and names the entries of the list that did not fail. */
function judge(entries, checks) {
  const covers = entry => check => entry === check.scenario || entry === `${check.scenario}:${check.id}`;
  const excused = check => {
    const entry = entries.find(entry => covers(entry)(check));
    return entry && (check.details?.untestable || checks.filter(covers(entry)).every(failed) || !entry.includes(':'));
  };
  const failures = checks.filter(failed);
  return {
    excused: failures.filter(excused),
    problems: [
      ...failures.filter(check => !excused(check)).map(check => `${check.scenario}:${check.id} ${check.name}: ${check.errorMessage}`),
      ...entries.filter(entry => !failures.some(covers(entry))).map(entry => `${entry} is listed but did not fail`),
    ],
  };
}

function run({ suite, expected, options }, url) {
  const results = mkdtempSync(join(tmpdir(), 'libris-conformance-'));
  try {
    const list = here(`../conformance/${expected}`);
    const entries = [...readFileSync(list, 'utf8').matchAll(/^\s*- (\S+)/gm)].map(match => match[1]);
    const program = here(`node_modules/${suite}/dist/index.js`);
    const asked = [program, 'server', '--url', url, '--suite', 'all', ...options, '--expected-failures', list, '-o', results];
    const { status, stdout, stderr } = spawnSync(process.execPath, asked, { encoding: 'utf8', maxBuffer: 1 << 26 });
    const checks = checksIn(results);
    const passed = checks.filter(check => check.status === 'SUCCESS').length;
    const { excused, problems } = judge(entries, checks);
    if (status !== 0 && problems.length === 0) problems.push(`the suite ended with ${status}:\n${stdout}${stderr}`);
    console.log([suite, ...options].join(' ') + `: ${passed} checks passed, ${excused.length} failed as expected`);
    for (const problem of problems) console.log(`✗ ${problem}`);
    return { passed, excused: excused.length, failed: problems.length };
  } finally {
    rmSync(results, { recursive: true });
  }
}

/** The scenarios of the Skills extension, which no revision includes. */
const extensionScenarios = ['sep-2640-skills-enumeration', 'sep-2640-skills-manifest', 'sep-2640-skills-directory'];

/** Runs one scenario, all of whose checks must pass. */
function runScenario(scenario, url) {
  const results = mkdtempSync(join(tmpdir(), 'libris-conformance-'));
  try {
    const program = here('node_modules/conformance-0.2/dist/index.js');
    const asked = [program, 'server', '--url', url, '--scenario', scenario, '-o', results];
    const { status, stdout, stderr } = spawnSync(process.execPath, asked, { encoding: 'utf8', maxBuffer: 1 << 26 });
    const checks = checksIn(results);
    const passed = checks.filter(check => check.status === 'SUCCESS').length;
    const problems = checks.filter(check => check.status !== 'SUCCESS').map(check => `${scenario}:${check.id}: ${check.errorMessage}`);
    if (status !== 0 || passed === 0) problems.push(`${scenario} ended with ${status}:\n${stdout}${stderr}`);
    console.log(`${scenario}: ${passed} checks passed`);
    for (const problem of problems) console.log(`✗ ${problem}`);
    return { passed, excused: 0, failed: problems.length };
  } finally {
    rmSync(results, { recursive: true });
  }
}

/** Runs `libris` as a gateway between the server of a scenario and a client that uses everything the server has. */
const gateway = `${process.execPath} ${here('gateway_client.mjs')}`;

const libris = command => `${process.env.LIBRIS_BIN} ${command}`;

/** Allows the suite to skip the checks of methods other than these, which the client does not use. */
const uses = (...methods) => check => !methods.some(method => check.name.endsWith(`_${method.replace('/', '_')}`));

/** Libris declares no capabilities of its own, so the checks of how they are declared are skipped. */
const declaresNothing = check => /^ClientDeclares\w+Capability$/.test(check.name);

/** The scenarios for clients, each with the command that is run on its server, and the checks that may be skipped. */
const clientScenarios = [
  ['initialize', libris('info')],
  ['request-metadata', libris('info'), declaresNothing],
  ['http-standard-headers', libris('ls'), uses('resources/list')],
  ['http-standard-headers', libris('read https://example.com/resource?id=123'), uses('resources/read')],
  ['http-standard-headers', libris('prompts --get test_prompt'), uses('prompts/list', 'prompts/get')],
  ['http-standard-headers', gateway, uses('resources/list', 'resources/read', 'prompts/list', 'prompts/get', 'tools/list', 'tools/call')],
  ['http-invalid-tool-headers', gateway],
  ['json-schema-ref-no-deref', gateway],
  ['sep-2322-client-request-state', gateway],
  ['sse-retry', gateway],
  ['tools_call', gateway],
  ['sep-2640-client-no-prefetch', libris('skills')],
  ['sep-2640-client-verify-digest', libris('skills --load pdf-processing')],
  ['sep-2640-client-verify-size', libris('skills --load pdf-processing')],
  ['sep-2640-client-verify-frontmatter', libris('skills --load pdf-processing')],
];

/** Runs the client of one scenario. */
function runClient([scenario, client, maySkip = () => false]) {
  const results = mkdtempSync(join(tmpdir(), 'libris-conformance-'));
  try {
    const program = here('node_modules/conformance-0.2/dist/index.js');
    const asked = [program, 'client', '--command', client, '--scenario', scenario, '-o', results];
    const { status, stdout, stderr } = spawnSync(process.execPath, asked, { encoding: 'utf8', maxBuffer: 1 << 26 });
    const checks = checksIn(results);
    const passed = checks.filter(check => check.status === 'SUCCESS').length;
    const problems = checks
      .filter(check => failed(check) || (check.status === 'SKIPPED' && !maySkip(check)))
      .map(check => `${scenario}:${check.id} ${check.name}: ${check.status}: ${check.errorMessage}`);
    if (status !== 0 || passed === 0) problems.push(`${scenario} ended with ${status}:\n${stdout}${stderr}`);
    const shown = client === gateway ? 'gateway' : client.slice(libris('').length);
    console.log(`client ${scenario} (${shown}): ${passed} checks passed`);
    for (const problem of problems) console.log(`✗ ${problem}`);
    return { passed, excused: 0, failed: problems.length };
  } finally {
    rmSync(results, { recursive: true });
  }
}

const servers = {
  'libris serve': () => serveHttp(['--config', here('../conformance/libris.toml')]),
  'three replicas behind nginx': () => serveCluster(here('../conformance/libris.toml')),
  '#[resources]': () => start(process.env.LIBRIS_EXAMPLE, []),
};

const total = { passed: 0, excused: 0, failed: 0 };
for (const [name, serve] of Object.entries(servers)) {
  console.log(name);
  const server = await serve();
  try {
    for (const suite of suites) {
      const outcome = run(suite, server.url);
      for (const key in total) total[key] += outcome[key];
    }
    if (name === 'libris serve') {
      for (const scenario of extensionScenarios) {
        const outcome = runScenario(scenario, server.url);
        for (const key in total) total[key] += outcome[key];
      }
      const checked = spawnSync('python3', [here('skills.py'), server.url, here('../conformance/skills')], { encoding: 'utf8' });
      console.log(checked.status === 0 ? checked.stdout.trim() : `✗ the digests of skills\n${checked.stdout}${checked.stderr}`);
      total[checked.status === 0 ? 'passed' : 'failed'] += 1;
    }
  } finally {
    await server.stop();
  }
}
for (const scenario of clientScenarios) {
  const outcome = runClient(scenario);
  for (const key in total) total[key] += outcome[key];
}
console.log(`conformance: ${total.passed} passed, ${total.failed} failed, ${total.excused} skipped`);
process.exitCode = total.failed && 1;
