// Checks pages in a real Chromium, in light and dark mode, at several widths and in print, and reports problems.
//
//   node look.mjs PLAYWRIGHT CHROMIUM FOLDER PAGE...
//
// Writes screenshots into FOLDER. The last line of output is JSON: {"looked": n, "problems": [...], "bars": {...}}.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [playwright, executablePath, folder, ...files] = process.argv.slice(2);
const { chromium } = await import(pathToFileURL(playwright).href);

const WIDTHS = [1280, 760, 360, 320];
const SCHEMES = ['light', 'dark'];

// Runs in the page.
function inspect() {
  const problems = [];
  const seen = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && !element.closest('.hidden') && element.checkVisibility();
  };
  const root = document.documentElement;
  if (root.scrollWidth > window.innerWidth) {
    problems.push(`the page is ${root.scrollWidth} wide, the window ${window.innerWidth}`);
  }

  // The boxes of all text, line by line.
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest('title') || !seen(parent)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      boxes.push({ text: node.data.trim().slice(0, 40), box });
      if (box.left < -0.5 || box.right > window.innerWidth + 0.5) {
        problems.push(`"${node.data.trim().slice(0, 40)}" is outside the window: ${box.left} to ${box.right}`);
      }
    }
  }
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length; j++) {
      const [a, b] = [boxes[i].box, boxes[j].box];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // Line boxes may touch; an overlap of a third of the height is a problem.
      if (across > 1 && down > Math.min(a.height, b.height) / 3) {
        problems.push(`"${boxes[i].text}" and "${boxes[j].text}" overlap by ${across.toFixed(1)} x ${down.toFixed(1)}`);
      }
    }
  }

  // Text must be inside its cell, tile or card, and labels inside their picture.
  for (const element of document.querySelectorAll('td, th, dt, dd, li, section, article, h1, h2, h3, p')) {
    if (seen(element) && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== 'inline') {
      problems.push(`<${element.localName}> "${element.textContent.slice(0, 40)}" is clipped: ${element.scrollWidth} in ${element.clientWidth}`);
    }
  }
  for (const text of document.querySelectorAll('svg text')) {
    const [inner, outer] = [text.getBoundingClientRect(), text.closest('svg').getBoundingClientRect()];
    if (seen(text) && (inner.left < outer.left - 1 || inner.right > outer.right + 1)) {
      problems.push(`axis label "${text.textContent}" is outside its picture`);
    }
  }
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    if (!svg.getAttribute('aria-label')) problems.push('a picture has no aria-label');
    if (seen(svg) && svg.getBoundingClientRect().width < 60) {
      problems.push(`the picture "${svg.getAttribute('aria-label')}" is ${svg.getBoundingClientRect().width} wide`);
    }
  }
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4')) {
    const next = Number(heading.localName[1]);
    if (next > level + 1) problems.push(`<${heading.localName}> "${heading.textContent}" follows a heading of level ${level}`);
    level = next;
  }

  // Contrast by WCAG: 4.5 for text, 3 for bars.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const [, , , alpha] = channels(colour);
      if (alpha === undefined || alpha > 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const contrast = (a, b) => {
    const [lighter, darker] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (lighter + 0.05) / (darker + 0.05);
  };
  const reported = new Set();
  const check = (element, colour, least) => {
    const ratio = contrast(colour, background(element));
    const what = `${colour} on ${background(element)} (${element.localName}.${element.getAttribute('class')}): ${ratio.toFixed(2)}`;
    if (ratio < least && !reported.has(what)) problems.push(`contrast of ${what}`);
    reported.add(what);
  };
  for (const element of document.querySelectorAll('body *')) {
    if (!seen(element)) continue;
    const style = getComputedStyle(element);
    if (element.localName === 'rect') check(element, style.fill, 3);
    else if (element.localName === 'text') check(element, style.fill, 4.5);
    else if ([...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) check(element, style.color, 4.5);
  }

  // The text of a number is its value with grouped digits.
  for (const data of document.querySelectorAll('data[data-json]')) {
    const text = data.textContent;
    if (/^[\d,]+$/.test(text) && text.replaceAll(',', '') !== data.value) {
      problems.push(`${data.dataset.json} shows ${text} for ${data.value}`);
    }
  }
  return problems;
}

// The lengths of the bars in the table of buckets, by bucket and class, as a share of the full width.
function lengths() {
  const all = {};
  for (const row of document.querySelectorAll('tr[data-bucket]')) {
    const full = row.querySelector('svg').getBoundingClientRect().width;
    const bars = {};
    for (const rect of row.querySelectorAll('rect')) {
      bars[rect.getAttribute('class')] = rect.getBoundingClientRect().width / full;
    }
    all[`${row.dataset.owner}/${row.dataset.bucket}`] = bars;
  }
  return all;
}

const profile = mkdtempSync(join(tmpdir(), 'janitor-browser-'));
let context;
const result = { looked: 0, problems: [], bars: {} };
try {
  context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    timeout: 60_000,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync'],
  });
  const page = await context.newPage();
  let here = '';
  page.on('console', (message) => result.problems.push(`${here}: console: ${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => result.problems.push(`${here}: error: ${error.message}`));
  page.on('dialog', (dialog) => { result.problems.push(`${here}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => {
    if (!/^(file|data):/.test(request.url())) result.problems.push(`${here}: requests ${request.url()}`);
  });
  for (const file of files) {
    const name = basename(file, '.html');
    for (const scheme of SCHEMES) {
      for (const width of WIDTHS) {
        here = `${name}-${scheme}-${width}`;
        await page.emulateMedia({ colorScheme: scheme, media: 'screen' });
        await page.setViewportSize({ width, height: 900 });
        await page.goto(pathToFileURL(file).href);
        result.problems.push(...(await page.evaluate(inspect)).map((problem) => `${here}: ${problem}`));
        if (width !== 760) await page.screenshot({ path: join(folder, `${here}.png`), fullPage: true });
        result.looked += 1;
      }
    }
    // Print has a white background, also in dark mode.
    here = `${name}-print`;
    await page.emulateMedia({ colorScheme: 'dark', media: 'print' });
    await page.setViewportSize({ width: 720, height: 900 });
    result.problems.push(...(await page.evaluate(inspect)).map((problem) => `${here}: ${problem}`));
    const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    if (paper !== 'rgb(255, 255, 255)') result.problems.push(`${here}: the background is ${paper}`);
    result.bars[name] = await page.evaluate(lengths);
  }
} catch (error) {
  result.problems.push(`the browser: ${error.stack}`);
} finally {
  await context?.close();
  rmSync(profile, { recursive: true, force: true });
}
console.log(JSON.stringify(result));
