// The picker in a real browser, against servers with files, git, SQL, documents and templates.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bin, serveHttp } from '../libris.mjs';
import { SCREENS, SMALLEST, accessible, accessiblePreview, indexed, launch, open, origin, pane, picture, previewShows, row, until, visit } from './browser.mjs';
import { everything, pdf } from './library.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const title = page => page.$eval('.detail h2', one => one.textContent);

for (const [screen, viewport] of SCREENS) {
  describe(screen, () => {
    let server;
    let library;
    let at;
    before(async () => {
      library = everything({ bundle: screen === 'desktop' });
      server = await serveHttp(['--config', library.config]);
      at = origin(server);
      await indexed(server);
    });
    after(() => server?.stop());

    test('shows the tree, folders as lists, and Markdown', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await row(page, 'handbook');
      await row(page, 'project');
      await row(page, 'shop');
      await picture(page, `${screen}-start`);
      await accessible(page, 'the start');
      await open(page, 'handbook');
      await until(page, () => document.querySelectorAll('.list-rows .entry').length >= 5);
      assert.equal(await title(page), 'handbook');
      await until(page, () => document.querySelector('.list-rows')?.textContent.includes('README.md'));
      await picture(page, `${screen}-folder`);
      await accessible(page, 'a folder');
      await page.evaluate(() => [...document.querySelectorAll('.entry-name')].find(one => one.textContent.includes('README.md')).click());
      await previewShows(page, 'handbook');
      await until(page, () => document.querySelector('.facts').textContent.includes('priority 0.9'));
      assert.equal(await page.frames().at(-1).evaluate(() => getComputedStyle(document.body).margin), '0px', 'the style of the preview');
      await picture(page, `${screen}-markdown`);
      await accessible(page, 'Markdown');
      await visitor.close();
    });

    test('previews every kind', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      const kinds = [
        ['program.rs', /fn[\s\S]*main[\s\S]*Douglas Adams/],
        ['report.pdf', 'Quarterly results are excellent'],
        ['bytes.bin', /00000000[\s\S]*00 01 02 03 ff fe 00 4d/],
        ['study.ipynb', /Study[\s\S]*import[\s\S]*3\.14159/],
        ['change.patch', /-old line[\s\S]*\+new line/],
        ['letter.docx', 'the shelves are full'],
        ['stock.xlsx', /Shelf[\s\S]*four hundred/],
        ['slides.pptx', 'The last slide'],
        ['novel.epub', 'It was a dark and stormy evening'],
        ['page.html', 'The words of a page of the web'],
        ['long.log', '12 a line of the log'],
      ];
      await open(page, 'handbook', 'kinds');
      for (const [name, shown] of kinds) {
        if (viewport.isMobile) await pane(page, 'browse');
        await (await row(page, name)).click();
        if (name === 'report.pdf') {
          await page.waitForSelector('#tab-text');
          await page.click('#tab-text');
        }
        await previewShows(page, shown);
        await picture(page, `${screen}-${name.split('.').pop()}`);
        await accessiblePreview(page, name);
      }
      await until(page, () => document.querySelector('.frame-note')?.textContent.includes('Next part'));
      await page.evaluate(() => [...document.querySelectorAll('.parts button')].at(-1).click());
      await previewShows(page, /6500 a line of the log/);
      for (const [name, selector] of [['photo.png', '.media img'], ['picture.svg', '.media img'], ['film.webm', '.media video'], ['tone.wav', '.media audio']]) {
        if (viewport.isMobile) await pane(page, 'browse');
        await (await row(page, name)).click();
        await page.waitForSelector(selector);
        await until(page, selector => document.querySelector(selector).naturalWidth !== 0, selector);
        await picture(page, `${screen}-${name.split('.')[0]}`);
      }
      await accessible(page, 'audio');
      for (const [uri, shown] of [
        ['file:///handbook/data/settings.json', /\{ \d+ \}/],
        ['file:///handbook/people/team.csv', /\d+ rows/],
        // The names are also in the table before.
        ['sqlite://shop/users/rows', /ada@shop\.example[\s\S]*grace@shop\.example/],
        ['git://project/tree/main/README.md', 'the code'],
      ]) {
        await page.evaluate(uri => { location.hash = `uri=${encodeURIComponent(uri)}`; }, uri);
        await previewShows(page, shown);
        await picture(page, `${screen}-${uri.split(/[/.]/).pop()}-${uri.split(':')[0]}`);
        await accessiblePreview(page, uri);
      }
      // A link of the document leads to another resource of the library.
      await (await page.frames().at(-1).$('a')).click();
      await previewShows(page, /pub[\s\S]*fn[\s\S]*one/);
      assert.equal(await title(page), 'lib.rs');
      await visitor.close();
    });

    test('shows the pages of a PDF with their layout', async () => {
      const reads = [];
      const visitor = await visit(browser, at, { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Freport.pdf', viewport, before: page => {
        page.on('request', request => reads.push(...(request.postData() ?? '').match(/manual\.pdf\?as=image&pages=\d+/g) ?? []));
      } });
      const { page } = visitor;
      await until(page, () => document.querySelector('[data-page="1"] img')?.naturalWidth > 0);
      assert.deepEqual(await page.$$eval('[role="tab"]', tabs => tabs.map(one => one.textContent)), ['Pages', 'Text', 'Source', 'Details']);
      // The chart is in colour, in its place on the page.
      const colour = await page.evaluate(() => {
        const image = document.querySelector('[data-page="1"] img');
        const canvas = Object.assign(document.createElement('canvas'), { width: image.naturalWidth, height: image.naturalHeight });
        const drawing = canvas.getContext('2d', { willReadFrequently: true });
        drawing.drawImage(image, 0, 0);
        const at = (x, y) => [...drawing.getImageData(x / 612 * canvas.width, (792 - y) / 792 * canvas.height, 1, 1).data];
        return { bar: at(450, 500), paper: at(60, 500) };
      });
      assert.deepEqual(colour, { bar: [122, 46, 59, 255], paper: [255, 255, 255, 255] });
      await picture(page, `${screen}-pdf-pages`);
      await accessible(page, 'the pages of a PDF');
      const shown = () => page.$eval('.pager select', one => one.selectedOptions[0].textContent);
      assert.equal(await shown(), 'Page 1 of 2');
      await page.click('[aria-label="Next page"]');
      await until(page, () => document.querySelector('.pager select').selectedOptions[0].textContent === 'Page 2 of 2');
      await until(page, () => document.querySelector('[data-page="2"] img')?.naturalWidth > 0);
      // Its words are beside it.
      await page.click('#tab-text');
      await previewShows(page, /Quarterly results[\s\S]*outlook is cloudy/);
      await page.click('#tab-preview');
      // A page that comes back is where it was.
      await until(page, () => document.querySelector('.pager select')?.selectedOptions[0].textContent === 'Page 2 of 2');

      // Of a long document, only the pages near the visible part are read.
      await page.evaluate(() => { location.hash = `uri=${encodeURIComponent('file:///handbook/kinds/manual.pdf')}`; });
      await until(page, () => document.querySelectorAll('.sheet').length === 60 && document.querySelector('[data-page="1"] img')?.naturalWidth > 0);
      await page.select('.pager select', '60');
      await until(page, () => document.querySelector('[data-page="60"] img')?.naturalWidth > 0);
      for (let number = 59; number > 40; number -= 3) {
        await page.select('.pager select', String(number));
        await until(page, number => document.querySelector(`[data-page="${number}"] img`)?.naturalWidth > 0, number);
      }
      assert.ok(await page.$$eval('.sheet img', all => all.length) <= 14, 'images that are far away are dropped');
      assert.deepEqual(reads.filter(read => /=(1[5-9]|2\d)$/.test(read)), [], 'pages in the middle are not read');

      // A change of the document is a change of its pages.
      writeFileSync(join(library.kinds, 'manual.pdf'), pdf(['First edition', 'Second', 'Third']));
      await until(page, () => document.querySelectorAll('.sheet').length === 3 && document.querySelector('[data-page="3"] img')?.naturalWidth > 0);
      writeFileSync(join(library.kinds, 'manual.pdf'), pdf(Array.from({ length: 60 }, (_, page) => `Chapter ${page + 1}`)));
      await visitor.close();
    });

    test('turns the pages of a document', async () => {
      const visitor = await visit(browser, at, { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Freport.pdf', viewport });
      const { page } = visitor;
      await page.waitForSelector('#tab-text');
      await page.click('#tab-text');
      await previewShows(page, /Quarterly results[\s\S]*outlook is cloudy/);
      await until(page, () => document.querySelector('.pager select')?.selectedOptions[0].textContent === 'All 2 pages');
      await page.click('[aria-label="Next page"]');
      await until(page, () => document.querySelector('.pager select')?.selectedOptions[0].textContent === 'Page 1 of 2');
      assert.doesNotMatch(await previewShows(page, 'Quarterly results'), /cloudy/);
      await until(page, () => document.activeElement.getAttribute('aria-label') === 'Next page');
      await page.keyboard.press('Enter');
      assert.doesNotMatch(await previewShows(page, 'outlook is cloudy'), /Quarterly/);
      await until(page, () => document.querySelector('[aria-label="Next page"]').disabled);
      await picture(page, `${screen}-pages`);
      await accessible(page, 'a page of a document');
      await page.select('.pager select', '');
      await previewShows(page, /Quarterly results[\s\S]*outlook is cloudy/);
      await visitor.close();
    });

    test('shows the source and the details', async () => {
      const visitor = await visit(browser, at, { path: '/#uri=file%3A%2F%2F%2Fhandbook%2FREADME.md', viewport });
      const { page } = visitor;
      await page.waitForSelector('#tab-source');
      await page.click('#tab-source');
      await previewShows(page, /# /);
      await page.click('#tab-details');
      await until(page, () => document.querySelector('.details')?.textContent.includes('text/markdown'));
      await until(page, () => /fresh|ask each time|no hint/.test(document.querySelector('.details').textContent));
      const command = await page.$eval('.snippet-code', one => one.textContent);
      await picture(page, `${screen}-details`);
      await accessible(page, 'the details');
      const answer = JSON.parse(execFileSync('sh', ['-c', command], { encoding: 'utf8' }));
      assert.equal(answer.result.contents[0].uri, 'file:///handbook/README.md');
      await visitor.close();
    });

    test('searches as you type', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await row(page, 'handbook');
      await page.type('#query', 'page');
      await until(page, () => document.querySelectorAll('.hit').length > 0);
      await until(page, () => document.querySelector('.hit mark'));
      await picture(page, `${screen}-search`);
      await accessible(page, 'results');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await until(page, () => document.querySelector('.detail h2'));
      await pane(page, 'browse');
      await page.$eval('#query', one => { one.value = ''; });
      await page.type('#query', 'zzqxjv wwqk');
      await until(page, () => document.querySelector('.nothing') && !document.querySelector('.nothing').hidden);
      await until(page, () => document.querySelector('.nothing').textContent.includes('Nothing matches'));
      await picture(page, `${screen}-nothing`);
      await accessible(page, 'no results');
      await visitor.close();
    });

    test('filters by source, type, age and audience', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await row(page, 'project');
      const hits = () => page.$$eval('.hit .where', all => all.map(one => one.textContent));
      const find = async words => {
        await page.$eval('#query', one => { one.value = ''; });
        await page.type('#query', words);
        await until(page, () => document.querySelector('.hit') && !document.querySelector('.results').hasAttribute('aria-busy'));
      };
      const filter = async (name, value, expected) => {
        await page.select(`.filters select[aria-label="${name}"]`, value);
        await until(page, pattern => {
          const found = [...document.querySelectorAll('.hit .where')].map(one => one.textContent);
          return !document.querySelector('.results').hasAttribute('aria-busy') && found.length > 0 && found.every(one => new RegExp(pattern).test(one));
        }, expected.source);
      };
      await find('see the code');
      const source = await page.$$eval('.filters select[aria-label="Source"] option', all => all.find(one => one.textContent === 'project').value);
      await filter('Source', source, /^git:/);
      await page.select('.filters select[aria-label="Source"]', '');
      await find('team');
      await until(page, () => document.querySelectorAll('.hit').length > 1);
      assert.ok((await hits()).some(one => one.includes('.md')));
      await filter('Type', 'text/csv', /\.csv/);
      await page.select('.filters select[aria-label="Type"]', '');
      await find('decisions');
      await until(page, () => [...document.querySelectorAll('.hit .where')].some(one => one.textContent.includes('decisions.md')));
      await filter('Modified', '7', /^(?!.*decisions\.md)/);
      await filter('Modified', '', /./);
      // It is for the model only; resources that name no audience are for everybody.
      await filter('Audience', 'user', /^(?!.*decisions\.md)/);
      assert.ok((await hits()).some(one => one.includes('handbook/README.md')));
      await filter('Audience', 'assistant', /./);
      await until(page, () => [...document.querySelectorAll('.hit .where')].some(one => one.textContent.includes('decisions.md')));
      assert.match(await page.$eval('.results .foot', one => one.textContent), /^\d+ found/);
      await picture(page, `${screen}-filters`);
      // Nothing is left: what to try is to remove the filters.
      await page.select('.filters select[aria-label="Type"]', 'application/pdf');
      await until(page, () => !document.querySelector('.nothing').hidden && document.querySelector('.nothing .link'));
      await page.click('.nothing .link');
      await until(page, () => document.querySelectorAll('.hit').length > 1);
      assert.deepEqual(await page.$$eval('.filters select', all => all.map(one => one.value)), ['', '', '', '']);
      await visitor.close();
    });

    test('fills in templates with completion', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await (await row(page, 'Templates')).click();
      await page.evaluate(() => { location.hash = `template=${encodeURIComponent('sqlite://shop/{table}/rows/{key}{?format}')}`; });
      await page.waitForSelector('#field-table');
      await page.focus('#field-table');
      await until(page, () => document.querySelector('#field-table-list')?.textContent.includes('users'));
      await picture(page, `${screen}-template`);
      await accessible(page, 'a template');
      await page.type('#field-table', 'us');
      await until(page, () => document.querySelectorAll('#field-table-list li').length === 1);
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      assert.equal(await page.$eval('#field-table', one => one.value), 'users');
      // The keys are those of the table that is filled in.
      await page.focus('#field-key');
      await until(page, () => document.querySelectorAll('#field-key-list li').length > 0);
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await page.click('.template-form .primary');
      await previewShows(page, /id|name/);
      await visitor.close();
    });

    test('selects, counts tokens, exports and restores', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await open(page, 'handbook', 'guide');
      await pane(page, 'browse');
      await row(page, 'on-call.md');
      await page.evaluate(() => [...document.querySelectorAll('.tree-rows .row')].find(one => one.textContent.includes('on-call.md')).querySelector('.tick').click());
      await until(page, () => document.querySelector('.badge').textContent === '1');
      await page.evaluate(() => [...document.querySelectorAll('.tree-rows .row')].find(one => one.querySelector('.name').textContent === 'guide').querySelector('.tick').click());
      await until(page, () => Number(document.querySelector('.badge').textContent) >= 3);
      await page.click('#basket');
      await until(page, () => /≈ [1-9]/.test(document.querySelector('.meter-text').textContent));
      await page.type('#message', 'Who is on call tonight? @team');
      await until(page, () => [...document.querySelectorAll('#offers li')].some(one => one.textContent.includes('team.csv')));
      await picture(page, `${screen}-composer`);
      await page.keyboard.press('Enter');
      await until(page, () => document.querySelector('#message').value.includes('@team.csv'));
      await until(page, () => document.querySelector('.picked').textContent.includes('team.csv'));
      await picture(page, `${screen}-selection`);
      await accessible(page, 'the selection');
      const copied = {};
      for (const format of ['markdown', 'xml', 'json']) {
        await page.select('.actions select', format);
        await page.evaluate(() => { document.getElementById('toast').textContent = ''; });
        await page.click('.actions .primary');
        await until(page, () => / as /.test(document.getElementById('toast').textContent));
        copied[format] = await page.evaluate(() => navigator.clipboard.readText());
      }
      assert.match(copied.markdown, /^Who is on call tonight\? @team\.csv/);
      assert.match(copied.markdown, /Source: <file:\/\/\/handbook\/guide\/on-call\.md>/);
      assert.match(copied.xml, /<document index="1" uri="file:\/\/\/handbook\/guide\/on-call\.md"/);
      const blocks = JSON.parse(copied.json);
      assert.ok(blocks.some(block => block.type === 'resource' && block.resource.uri === 'file:///handbook/people/team.csv'));
      await page.click('[aria-label="Copy a link to this selection"]');
      await until(page, () => document.getElementById('toast').textContent === 'Link copied');
      const link = await page.evaluate(() => navigator.clipboard.readText());
      const again = await visit(browser, at, { path: link.slice(at.length), viewport });
      await until(again.page, number => document.querySelector('.badge').textContent === number, String(await page.$eval('.badge', one => one.textContent)));
      await until(again.page, () => document.querySelector('.picked').textContent.includes('team.csv'));
      await again.close();
      await visitor.close();
    });

    test('suggests what fits the message', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await row(page, 'handbook');
      await page.click('#basket');
      await page.type('#message', 'Who is on call tonight, and whom do they wake up?');
      await until(page, () => document.querySelectorAll('.suggestions li').length > 0);
      const reasons = await page.$$eval('.suggestions li .about', all => all.map(one => one.textContent));
      const fromBundle = /^Lines \d+-\d+: result \d+ of the search/;
      for (const reason of reasons) {
        if (screen === 'desktop') assert.match(reason, fromBundle);
        else assert.doesNotMatch(reason, fromBundle);
        assert.ok(reason.length > 0);
      }
      await picture(page, `${screen}-suggestions`);
      await page.click('.suggestions .link');
      await until(page, () => document.querySelector('.picked').textContent.includes('on-call.md'));
      await visitor.close();
    });

    test('attaches by itself, and follows the conversation', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      const question = 'Who is on call tonight, and whom do they wake up?';
      await row(page, 'handbook');
      await page.click('#basket');
      await page.type('#message', question);
      await until(page, () => document.querySelector('.suggestions')?.textContent.includes('On call'));
      assert.ok(!(await page.$eval('.suggestions', one => one.textContent)).includes('\ufffd'));
      assert.equal(await page.$eval('.picked', one => one.textContent.includes('on-call.md')), false);
      await page.click('#automatic');
      await until(page, () => document.querySelector('.picked').textContent.includes('on-call.md'));
      await page.click('.actions .primary');
      await until(page, () => / as /.test(document.getElementById('toast').textContent));
      // The choice lasts, and can be taken back.
      await page.reload();
      await row(page, 'handbook');
      await page.click('#basket');
      await page.type('#message', question);
      await until(page, () => document.querySelector('.picked').textContent.includes('on-call.md'));
      await page.click('#automatic');
      await page.click('.actions .primary');
      await until(page, () => / as /.test(document.getElementById('toast').textContent));
      await page.click('.tray-head .link');
      // The next message says nothing by itself.
      await page.$eval('#message', one => { one.value = ''; });
      await page.type('#message', 'And tomorrow?');
      await until(page, () => document.querySelector('.suggestions').textContent.includes('What fits the conversation'));
      await until(page, () => document.querySelector('.suggestions').textContent.includes('On call'));
      assert.equal(await page.$eval('.picked', one => one.textContent.includes('on-call.md')), false);
      await picture(page, `${screen}-conversation`);
      await accessible(page, 'suggestions');
      await visitor.close();
    });

    test('mentions skills, and takes files that are dropped', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page } = visitor;
      await row(page, 'handbook');
      await page.click('#basket');
      await page.type('#message', 'Write it down with @meet');
      await until(page, () => document.querySelector('#offers li')?.textContent.includes('meeting-notes'));
      await picture(page, `${screen}-skills`);
      await page.keyboard.press('Enter');
      await until(page, () => document.querySelector('#message').value.includes('@meeting-notes '));
      await until(page, () => document.querySelector('.picked').textContent.includes('meeting-notes'));
      await page.evaluate(() => {
        const composer = document.querySelector('.composer');
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(['# Mine\n'], 'mine.md', { type: 'text/markdown' }));
        dataTransfer.items.add(new File([new Uint8Array([0, 255])], 'mine.bin'));
        for (const kind of ['dragover', 'drop']) composer.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
      });
      await until(page, () => /mine\.md[\s\S]*mine\.bin/.test(document.querySelector('.picked').textContent));
      await page.select('.actions select', 'json');
      await page.click('.actions .primary');
      await until(page, () => / as /.test(document.getElementById('toast').textContent));
      const blocks = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
      const contents = Object.fromEntries(blocks.filter(({ type }) => type === 'resource').map(({ resource }) => [resource.uri, resource.text ?? resource.blob]));
      assert.match(contents['skill://meeting-notes/SKILL.md'], /^---\nname: meeting-notes/);
      assert.equal(contents['local:mine.md'], '# Mine\n');
      assert.equal(contents['local:mine.bin'], 'AP8=');
      // Files of this machine are not in a link.
      await page.click('[aria-label="Copy a link to this selection"]');
      await until(page, () => document.getElementById('toast').textContent === 'Link copied');
      const link = await page.evaluate(() => navigator.clipboard.readText());
      assert.deepEqual(new URLSearchParams(new URL(link).hash.slice(1)).getAll('sel'), ['skill://meeting-notes/SKILL.md']);
      await picture(page, `${screen}-dropped`);
      await accessible(page, 'files of this machine');
      await visitor.close();
    });

    test('follows changes and recovers', async () => {
      const visitor = await visit(browser, at, { viewport });
      const { page, problems } = visitor;
      await open(page, 'handbook', 'kinds', 'live.md');
      await previewShows(page, 'The first version');
      await until(page, () => document.getElementById('state').dataset.state === 'live');
      writeFileSync(join(library.kinds, 'live.md'), '# Live\n\nThe second version.\n');
      await previewShows(page, 'The second version');
      writeFileSync(join(library.kinds, 'added.md'), '# Added\n');
      await pane(page, 'browse');
      await row(page, 'added.md');
      unlinkSync(join(library.kinds, 'added.md'));
      await until(page, () => ![...document.querySelectorAll('.tree-rows .name')].some(one => one.textContent === 'added.md'));
      await page.setOfflineMode(true);
      await page.evaluate(() => dispatchEvent(new Event('online')));
      await until(page, () => document.getElementById('state').dataset.state === 'offline');
      writeFileSync(join(library.kinds, 'live.md'), '# Live\n\nThe third version.\n');
      await picture(page, `${screen}-offline`);
      await page.setOfflineMode(false);
      await until(page, () => document.getElementById('state').dataset.state === 'live');
      await previewShows(page, 'The third version');
      // The browser logs requests without a network.
      const expected = problems.filter(problem => problem.includes('ERR_INTERNET_DISCONNECTED'));
      problems.splice(0, problems.length, ...problems.filter(problem => !expected.includes(problem)));
      await visitor.close();
    });

    test('shows the status', async () => {
      const visitor = await visit(browser, at, { path: '/status', viewport });
      const { page } = visitor;
      await until(page, () => document.querySelectorAll('.sources li').length === 5);
      await until(page, () => document.querySelectorAll('.tile').length >= 5);
      await until(page, () => document.querySelector('.progress')?.getAttribute('aria-valuenow') === '100');
      // Requests are counted, and the page makes some.
      await until(page, () => [...document.querySelectorAll('.tile')].some(one => one.querySelector('dt').textContent === 'Requests' && /[1-9]/.test(one.querySelector('dd').firstChild.textContent)));
      await picture(page, `${screen}-status`);
      await accessible(page, 'the status');
      await visitor.close();
    });
  });
}

describe('keys and looks', () => {
  let server;
  before(async () => {
    server = await serveHttp(['--config', everything().config]);
  });
  after(() => server?.stop());

  for (const [screen, viewport] of SCREENS) {
    test(`works with the keyboard alone (${screen})`, async () => {
      const visitor = await visit(browser, origin(server), { viewport });
      const { page } = visitor;
      await row(page, 'handbook');
      await page.keyboard.press('/');
      assert.equal(await page.evaluate(() => document.activeElement.id), 'query');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.type('handb');
      const active = () => page.$eval('.row.active .name', one => one.textContent);
      await until(page, () => document.querySelector('.row.active .name')?.textContent === 'handbook');
      await page.keyboard.press('ArrowRight');
      await row(page, 'guide');
      await page.keyboard.press('Home');
      await page.keyboard.type('guide');
      await until(page, () => document.querySelector('.row.active .name')?.textContent === 'guide');
      await page.keyboard.press('ArrowRight');
      await row(page, 'decisions.md');
      await page.keyboard.press('ArrowDown');
      await until(page, () => document.querySelector('.row.active .name')?.textContent === 'decisions.md');
      await page.keyboard.press('Space');
      await page.keyboard.down('Shift');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.up('Shift');
      await until(page, () => document.querySelector('.badge').textContent === '3');
      await page.keyboard.press('Enter');
      await until(page, () => document.querySelector('.detail h2'));
      if (viewport.isMobile) {
        // The list is behind the resource, which has a button that leads back.
        await page.focus('[aria-label="Back to the list"]');
        await page.keyboard.press('Enter');
        await page.focus('.tree-rows');
      }
      await page.keyboard.press('ArrowLeft');
      await until(page, () => document.querySelector('.row.active .name')?.textContent === 'guide');
      await page.keyboard.press('ArrowLeft');
      await until(page, () => ![...document.querySelectorAll('.tree-rows .name')].some(one => one.textContent === 'decisions.md'));
      assert.equal(await active(), 'guide');
      await visitor.close();
    });
  }

  test('is dark where the system is, and fits the smallest screen', async () => {
    const dark = await visit(browser, origin(server), { path: '/#uri=file%3A%2F%2F%2Fhandbook%2Fkinds%2Fprogram.rs', dark: true });
    await previewShows(dark.page, 'main');
    await picture(dark.page, 'dark');
    await accessible(dark.page, 'the dark theme');
    await dark.close();
    for (const path of ['/', '/#uri=file%3A%2F%2F%2Fhandbook%2FREADME.md', '/status']) {
      const small = await visit(browser, origin(server), { path, viewport: SMALLEST });
      await until(small.page, () => document.querySelector('.row, .detail h2, .sources li'));
      const wide = await small.page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= SMALLEST.width, `${path} is ${wide} pixels wide`);
      await picture(small.page, `smallest${path.replace(/\W+/g, '-').slice(0, 12)}`);
      await accessible(small.page, `the smallest screen, ${path}`);
      await small.close();
    }
  });

  for (const [screen, viewport] of SCREENS) {
    test(`has a strict policy and a small first load (${screen})`, async () => {
      const response = await fetch(`${origin(server)}/`);
      const policy = response.headers.get('content-security-policy');
      assert.match(policy, /default-src 'none'/);
      assert.doesNotMatch(policy, /unsafe|https?:|\*/);
      const visitor = await visit(browser, origin(server), { viewport, before: async page => {
        const client = await page.createCDPSession();
        await client.send('Network.enable');
        page.loaded = 0;
        client.on('Network.loadingFinished', ({ encodedDataLength }) => { page.loaded += encodedDataLength; });
      } });
      await row(visitor.page, 'handbook');
      assert.ok(visitor.page.loaded > 10_000 && visitor.page.loaded <= 150 * 1024, `${visitor.page.loaded} bytes`);
      console.log(`first load (${screen}): ${visitor.page.loaded} bytes`);
      await visitor.close();
    });
  }
});

for (const [screen, viewport] of SCREENS) {
  test(`asks for a key where the server wants one (${screen})`, async () => {
    const { config, handbook } = everything();
    const keys = join(handbook, '../keys.toml');
    const key = execFileSync(bin, ['key', 'add', 'reader', '--keys', keys], { encoding: 'utf8' }).trim();
    assert.ok(key, 'no key was made');
    const server = await serveHttp(['--config', config, '--keys', keys]);
    const visitor = await visit(browser, origin(server), { viewport });
    const { page, problems } = visitor;
    await page.waitForSelector('#token');
    await accessible(page, 'the login');
    await picture(page, `${screen}-login`);
    await page.type('#token', 'libris_wrong');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.refused');
    await page.type('#token', key);
    await page.keyboard.press('Enter');
    await open(page, 'handbook');
    await page.evaluate(() => { location.hash = `uri=${encodeURIComponent('file:///handbook/README.md')}`; });
    await previewShows(page, 'handbook');
    // The browser logs the refusals.
    problems.splice(0, problems.length, ...problems.filter(problem => !problem.includes('401')));
    await visitor.close();
    await server.stop();
  });
}
