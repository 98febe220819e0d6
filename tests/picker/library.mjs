// The libraries that the browser visits: one with every kind of source, a hostile one, and a large one.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { docx, epub, png, pptx, xlsx } from './documents.mjs';

const root = join(import.meta.dirname, '../..');
const scratch = mkdtempSync(join(tmpdir(), 'libris-picker-'));
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }));

function folder(name) {
  const path = join(mkdtempSync(join(scratch, 'case-')), name);
  mkdirSync(path);
  return path;
}

/** A PDF with a page for each title. `drawings` are what else the pages show, and `catalog` what else the document has. */
export function pdf(titles, { drawings = [], catalog = '' } = {}) {
  const kids = titles.map((_, index) => `${4 + 2 * index} 0 R`).join(' ');
  const objects = [
    `<< /Type /Catalog /Pages 2 0 R ${catalog} >>`,
    `<< /Type /Pages /Kids [${kids}] /Count ${titles.length} >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
    ...titles.flatMap((title, index) => {
      const stream = `BT /F1 24 Tf 72 708 Td (${title}) Tj ET\n${drawings[index] ?? ''}`;
      return [
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${5 + 2 * index} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`,
        `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
      ];
    }),
  ];
  let body = '%PDF-1.4\n';
  const offsets = objects.map((object, index) => {
    const at = body.length;
    body += `${index + 1} 0 obj\n${object}\nendobj\n`;
    return at;
  });
  const start = body.length;
  const entries = offsets.map(offset => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  return `${body}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${entries}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
}

/** A page of a report: a chart in colour, and paragraphs. */
function chart() {
  const bars = [120, 165, 150, 214].map((height, index) => `${index === 3 ? '0.48 0.18 0.23' : '0.78 0.74 0.68'} rg ${96 + 108 * index} 420 72 ${height} re f`);
  const labels = ['First', 'Second', 'Third', 'Fourth'].map((name, index) => `BT /F1 10 Tf ${112 + 108 * index} 404 Td (${name}) Tj ET`);
  const words = 'Orders grew in every region, returns fell, and the two new shops paid for themselves within the year.'.split(' ');
  const lines = Array.from({ length: 16 }, (_, line) => `BT /F1 11 Tf 72 ${360 - 18 * line} Td (${[...words.slice(line % 9), ...words].slice(0, 14).join(' ')}) Tj ET`);
  return ['0.48 0.18 0.23 rg 72 752 468 4 re f', '0.85 0.82 0.78 RG 72 420 m 540 420 l S', ...bars, '0.3 0.29 0.27 rg', ...labels, ...lines].join('\n');
}

/** Silence, eight thousand bytes a second. */
function wav(seconds = 1) {
  const data = Buffer.alloc(8000 * seconds);
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + data.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(8000, 24);
  head.writeUInt32LE(8000, 28);
  head.writeUInt16LE(1, 32);
  head.writeUInt16LE(8, 34);
  head.write('data', 36);
  head.writeUInt32LE(data.length, 40);
  return Buffer.concat([head, data]);
}

/** Files of every kind, a repository, a database, documents, and a source that has only templates, with search; with the tool that makes bundles, if `bundle`. */
export function everything({ bundle = false } = {}) {
  const base = folder('everything');
  const handbook = join(base, 'handbook');
  cpSync(join(root, 'examples/handbook'), handbook, { recursive: true });
  cpSync(join(root, 'examples/shop.db'), join(base, 'shop.db'));
  const kinds = join(handbook, 'kinds');
  mkdirSync(kinds);
  writeFileSync(join(kinds, 'program.rs'), '//! A small program.\n\nfn main() {\n    let answer = 42; // by Douglas Adams\n    println!("the answer is {answer}");\n}\n');
  writeFileSync(join(kinds, 'report.pdf'), pdf(['Quarterly results are excellent', 'The outlook is cloudy'], { drawings: [chart()] }));
  writeFileSync(join(kinds, 'manual.pdf'), pdf(Array.from({ length: 60 }, (_, page) => `Chapter ${page + 1}`)));
  // A film without pictures: what matters is that the browser gets to play it.
  writeFileSync(join(kinds, 'film.webm'), Buffer.from('1a45dfa39f4286810142f7810142f2810442f381084282847765626d42878102428581021853806701ffffffffffffff', 'hex'));
  writeFileSync(join(kinds, 'tone.wav'), wav());
  writeFileSync(join(kinds, 'bytes.bin'), Buffer.from([0, 1, 2, 3, 255, 254, 0, 77, 90]));
  writeFileSync(join(kinds, 'study.ipynb'), JSON.stringify({ cells: [
    { cell_type: 'markdown', source: ['# Study\n', 'Of *numbers*.'] },
    { cell_type: 'code', source: 'import math\nprint(math.pi)', outputs: [{ output_type: 'stream', text: ['3.14159\n'] }] },
  ], metadata: { language_info: { name: 'python' } }, nbformat: 4, nbformat_minor: 5 }));
  writeFileSync(join(kinds, 'change.patch'), 'diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old line\n+new line\n');
  writeFileSync(join(kinds, 'picture.svg'), '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40"><circle cx="20" cy="20" r="18" fill="#7a2e3a"/></svg>');
  writeFileSync(join(kinds, 'photo.png'), png({ width: 60, height: 40, colour: [122, 46, 59] }));
  writeFileSync(join(kinds, 'letter.docx'), docx(['Dear colleague,', 'the shelves are full.']));
  writeFileSync(join(kinds, 'stock.xlsx'), xlsx([['Shelf', 'Books'], ['North', 'four hundred']]));
  writeFileSync(join(kinds, 'slides.pptx'), pptx(['The first slide', 'The last slide']));
  writeFileSync(join(kinds, 'novel.epub'), epub('It was a dark and stormy evening.'));
  writeFileSync(join(kinds, 'page.html'), '<!doctype html><title>A page</title><body><h1>A page</h1><p>The words of a page of the web.</p>');
  writeFileSync(join(kinds, 'live.md'), '# Live\n\nThe first version.\n');
  writeFileSync(join(kinds, 'long.log'), Array.from({ length: 60_000 }, (_, line) => `${line} a line of the log`).join('\n'));
  const old = new Date('2020-02-02T12:00:00Z');
  utimesSync(join(handbook, 'guide/decisions.md'), old, old);
  cpSync(join(root, 'examples/skills'), join(base, 'skills'), { recursive: true });
  const project = join(base, 'project');
  mkdirSync(project);
  const git = (...words) => execFileSync('git', ['-C', project, ...words], { stdio: 'ignore' });
  git('init', '-b', 'main');
  writeFileSync(join(project, 'README.md'), '# Project\n\nSee [the code](src/lib.rs).\n');
  mkdirSync(join(project, 'src'));
  writeFileSync(join(project, 'src/lib.rs'), 'pub fn one() -> u8 { 1 }\n');
  git('add', '.');
  git('-c', 'user.name=A', '-c', 'user.email=a@b.example', 'commit', '-m', 'begin');
  const config = join(base, 'libris.toml');
  writeFileSync(config, `
[server]
name = "handbook"
title = "The handbook"

[search]
enabled = true

[tools]
bundle = ${bundle}

[[files]]
path = "handbook"

[[files.rule]]
glob = "README.md"
priority = 0.9
audience = ["user", "assistant"]

[[files.rule]]
glob = "guide/decisions.md"
audience = ["assistant"]

[[git]]
path = "project"

[[sql]]
url = "sqlite:shop.db"

[[skills]]
path = "skills"

[[inline.template]]
uri = "greeting://{language}/{name}"
name = "greetings"
title = "Greetings"
mime = "text/markdown"
text = "A greeting in {{language}} for {{name}}."
complete = { language = ["english", "french", "german"], name = ["ada", "grace"] }
`);
  return { config, handbook, kinds };
}

/** Names and contents that try to run, to load, or to break the layout: of the server, of its files and folders, and of all else that it serves. */
export function hostile() {
  const path = folder('hostile');
  const base = join(path, '..');
  const attack = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
  const files = {
    '<img src=x onerror=alert(3)>.md': `# ${attack}\n\n[click](javascript:alert(4)) [data](data:text/html,<script>alert(5)</script>)\n\n${attack}\n\n<iframe src="https://evil.example/"></iframe>\n<object data="https://evil.example/"></object>\n<link rel=stylesheet href="https://evil.example/a.css">\n<style>body { display: none; background: url(https://evil.example/b.png) }</style>\n<form action="https://evil.example/"><input name=a autofocus onfocus=alert(6)></form>\n<svg onload=alert(7)></svg>\n<meta http-equiv=refresh content="0;url=https://evil.example/">\n<base href="https://evil.example/">\n\n![a picture](https://evil.example/c.png) ![b](x.svg)\n\n<a href="https://evil.example/" target=_top onclick=alert(8)>out</a>\n\nlast words\n`,
    'script.pdf': pdf(['Run me'], { catalog: '/OpenAction << /S /JavaScript /JS (app.alert\\(14\\)) >>' }),
    'broken.pdf': `%PDF-1.7\n${attack}\n%%EOF`,
    'x.svg': '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(9)"><script>alert(10)</script><image href="https://evil.example/d.png"/><rect width="9" height="9"/></svg>',
    'page.html': `<!doctype html><title>${attack}</title><body onload=alert(11)>${attack}<p>the words of a page</p>`,
    'names.json': JSON.stringify({ [attack]: [attack, { '</span><script>alert(12)</script>': '</details>' }], '__proto__': 'x' }),
    'rows.csv': `"${attack.replaceAll('"', '""')}",b\n=cmd(),${'c'.repeat(5000)}\n`,
    'line.txt': 'x'.repeat(10_000_000),
    'line.md': `start ${'y'.repeat(2_000_000)}`,
    'cells.ipynb': JSON.stringify({ cells: [{ cell_type: 'markdown', source: attack }, { cell_type: 'code', source: attack, outputs: [{ data: { 'image/png': '"><script>alert(13)</script>', 'text/html': attack }, text: attack }] }], metadata: {} }),
    'right\u202eto\u202cleft.rs': `let admin\u202e = "${attack}"; // \u2066 hidden \u2069\n`,
    [`${'long'.repeat(50)}.md`]: `# ${'W'.repeat(3000)}\n`,
    'deep.json': `${'['.repeat(5000)}${']'.repeat(5000)}`,
    'style.css': `@import url(https://evil.example/e.css);\nbody { background: url(https://evil.example/f.png) }\n</style>${attack}\n`,
    'zalgo.md': `# ${'a\u0301\u0302\u0303\u0304\u0305'.repeat(300)}\n`,
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(path, name), content);
  const inner = join(path, '<b onclick=alert(16)>folder \u202e');
  mkdirSync(inner);
  writeFileSync(join(inner, 'within.md'), `${attack}\n\nthe words of a file within\n`);
  const database = new DatabaseSync(join(base, 'evil.db'));
  database.exec('CREATE TABLE "<img src=x onerror=alert(17)>" (id INTEGER PRIMARY KEY, "<b>column" TEXT)');
  database.prepare('INSERT INTO "<img src=x onerror=alert(17)>" VALUES (1, ?)').run(`${attack} the words of a cell`);
  database.close();
  const skill = join(base, 'skills/evil');
  mkdirSync(skill, { recursive: true });
  writeFileSync(join(skill, 'SKILL.md'), `---\nname: evil\ndescription: 'A hostile skill ${attack}'\n---\n\n${attack}\n`);
  const config = join(base, 'libris.toml');
  writeFileSync(config, `
[server]
title = ${JSON.stringify(`The hostile server ${attack}`)}
description = ${JSON.stringify(`A description ${attack} ${'wide'.repeat(300)}`)}
instructions = ${JSON.stringify(`Instructions ${attack} ${'wide'.repeat(300)}`)}

[[files]]
path = "hostile"

[[sql]]
url = "sqlite:evil.db"

[[inline.template]]
uri = "evil://{name}"
name = ${JSON.stringify(attack)}
title = ${JSON.stringify(`a hostile template ${attack} ${'wide'.repeat(100)}`)}
description = ${JSON.stringify(`its description ${attack} ${'wide'.repeat(300)}`)}
mime = "text/markdown"
text = "# {{name}}"
complete = { name = [${JSON.stringify(attack)}] }

[[skills]]
path = "skills"

[[inline.resource]]
uri = "note://evil/text"
name = ${JSON.stringify(attack)}
title = ${JSON.stringify(`a hostile title ${attack}`)}
description = ${JSON.stringify(`a hostile description ${attack} ${'wide'.repeat(300)}`)}
mime = "text/markdown"
text = ${JSON.stringify(`# ${attack}\n\n[click](javascript:alert(15))\n`)}
`);
  return { config };
}

/** A sound and a text that are larger than the largest response of their source. */
export function media() {
  const path = folder('media');
  writeFileSync(join(path, 'night.wav'), wav(1500));
  writeFileSync(join(path, 'night.txt'), Array.from({ length: 300_000 }, (_, line) => `line ${line + 1} of a long night`).join('\n'));
  return path;
}

/** Files that are too large to be shown at once: in ranges from 1 MiB, and whole below that. */
export function parts() {
  const path = folder('parts');
  const lines = number => Array.from({ length: number }, (_, line) => `line ${line + 1} of a long night`).join('\n');
  writeFileSync(join(path, 'long.log'), lines(45_000));
  writeFileSync(join(path, 'short.log'), lines(12_000));
  writeFileSync(join(path, 'rows.csv'), `row,text\n${Array.from({ length: 2_500 }, (_, row) => `${row + 1},value ${row + 1}`).join('\n')}\n`);
  for (const [name, size] of [['large.bin', 1_500_000], ['small.bin', 300_000]]) {
    const data = Buffer.alloc(size);
    data.write('MARK', 40_000);
    data.write('LAST', size - 4);
    writeFileSync(join(path, name), data);
  }
  return path;
}

/** A hundred thousand resources: many folders, and one with many files. */
export function large() {
  const path = folder('large');
  const wide = join(path, 'wide');
  mkdirSync(wide);
  for (let number = 0; number < 20_000; number += 1) writeFileSync(join(wide, `note-${String(number).padStart(5, '0')}.txt`), '');
  for (let number = 0; number < 800; number += 1) {
    const sub = join(path, `folder-${String(number).padStart(3, '0')}`);
    mkdirSync(sub);
    for (let inner = 0; inner < 100; inner += 1) writeFileSync(join(sub, `page-${inner}.md`), '');
  }
  return path;
}
