// Opens reports in a headless browser as people do: on a desktop and on a phone, in light and dark.
//
//   node check.mjs SCREENSHOTS PAGE...
//
// Fails with every fault that it finds: words in the console, requests to anywhere, a page that is wider than the
// screen, charts that are not drawn, text that is cut off or too faint, tables that do not sort. Screenshots are for people.
import { mkdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import packed from "@sparticuz/chromium";
import { chromium } from "playwright-core";

const [screenshots, ...pages] = process.argv.slice(2);
const SCREENS = [
  { name: "desktop", viewport: { width: 1280, height: 900 } },
  { name: "phone", viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true },
];
const SCHEMES = ["light", "dark"];

let browser;
try {
  // The package's own switches are for functions that open one page: they keep all in one process, which ends with it.
  // A container's shared memory may be too small for a long page, and there is no graphics card.
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];
  browser = await chromium.launch({ executablePath: await packed.executablePath(), args, timeout: 60_000 });
} catch (error) {
  console.error(`no browser: ${String(error.message ?? error).split("\n")[0]}`);
  process.exit(77);
}

const faults = [];

// What is wrong with the layout, seen from inside the page.
function layout() {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("body *")]
      .filter((e) => !e.closest(".wide, nav") && e.getBoundingClientRect().right > root.clientWidth + 1)
      .slice(0, 3)
      .map((e) => `${e.tagName.toLowerCase()}.${e.className}`);
    faults.push(`the page is ${root.scrollWidth} wide on a screen of ${root.clientWidth}: ${wide.join(", ")}`);
  }
  const charts = [...document.querySelectorAll("svg")];
  if (charts.length < 3) faults.push(`there are only ${charts.length} charts`);
  for (const svg of charts) {
    const name = svg.getAttribute("aria-label");
    const box = svg.getBoundingClientRect();
    if (box.width < 100 || box.height < 30) faults.push(`the chart ${name} is ${box.width} by ${box.height}`);
    const drawn = [...svg.querySelectorAll("rect, path, circle, .slope")].filter((e) => {
      const style = getComputedStyle(e);
      return (style.fill !== "none" || style.stroke !== "none") && e.getBoundingClientRect().width + e.getBoundingClientRect().height > 0;
    });
    if (drawn.length === 0) faults.push(`nothing is drawn in the chart ${name}`);
    for (const text of svg.querySelectorAll("text:not([transform])")) {
      const own = text.getBoundingClientRect();
      if (own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1) {
        faults.push(`"${text.textContent}" is cut off in the chart ${name}`);
      }
    }
  }
  // Contrast of text with what is behind it (WCAG 2.1): 4.5, or 3 for large text.
  const channel = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = new Map();
  for (const e of document.querySelectorAll("main *, header *, nav *, footer *")) {
    if (e.closest("svg") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    if (e.getClientRects().length === 0) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) faint.set(`${style.color} on ${behind(e)}`, `${contrast.toFixed(2)}: "${e.textContent.trim().slice(0, 30)}"`);
  }
  for (const [colours, words] of faint) faults.push(`too faint, ${colours}, ${words}`);
  return faults;
}

// Clicks every head of every table twice, and compares the rows' order with the values that the cells carry.
async function sorting(page) {
  const faults = [];
  const tables = page.locator("table.sort");
  await page.evaluate(() => document.querySelectorAll("details").forEach((box) => { box.open = true; }));
  let sorted = 0;
  for (let table = 0; table < (await tables.count()); table++) {
    const heads = tables.nth(table).locator("thead th");
    for (let column = 0; column < (await heads.count()); column++) {
      for (const down of [false, true]) {
        await heads.nth(column).click();
        const wrong = await tables.nth(table).evaluate((element, { column, down }) => {
          const head = element.tHead.rows[0].cells[column];
          if (head.ariaSort !== (down ? "descending" : "ascending")) return `its head says ${head.ariaSort}`;
          const values = [...element.tBodies[0].rows].map((row) => row.cells[column].dataset.v ?? row.cells[column].textContent);
          const known = values.filter((value) => value !== "");
          if (values.slice(0, known.length).includes("")) return "what is not known does not come last";
          const numbers = known.map(Number);
          if (numbers.some(Number.isNaN)) return null;
          const inOrder = numbers.every((value, i) => i === 0 || (down ? value <= numbers[i - 1] : value >= numbers[i - 1]));
          return inOrder ? null : `its rows are not in order: ${numbers.slice(0, 6)}`;
        }, { column, down });
        if (wrong) faults.push(`table ${table + 1}, column ${column + 1}: ${wrong}`);
        sorted += 1;
      }
    }
  }
  if (sorted < 10) faults.push(`only ${sorted} sorts were tried: where are the tables?`);
  return faults;
}

// A picture of the whole page. On a busy machine the browser may not have painted in time and says that it cannot: it is
// asked again.
async function picture(page, path) {
  for (let left = 4; ; left--) {
    try {
      return await page.screenshot({ path, fullPage: true });
    } catch (error) {
      if (left === 0) throw error;
      await page.waitForTimeout(1000);
    }
  }
}

mkdirSync(screenshots, { recursive: true });
for (const path of pages) {
  for (const { name, ...screen } of SCREENS) {
    for (const colorScheme of SCHEMES) {
      const where = `${basename(dirname(dirname(resolve(path))))} ${name} ${colorScheme}`;
      const fault = (words) => faults.push(`${where}: ${words}`);
      const context = await browser.newContext({ ...screen, colorScheme });
      const page = await context.newPage();
      page.on("console", (message) => fault(`console: ${message.text()}`));
      page.on("pageerror", (error) => fault(`error: ${error.message}`));
      page.on("request", (request) => { if (!request.url().startsWith("file:")) fault(`it asked for ${request.url()}`); });
      await page.goto(pathToFileURL(resolve(path)).href);
      (await page.evaluate(layout)).forEach(fault);
      await picture(page, join(screenshots, `${where.replaceAll(" ", "-")}.png`));
      if (colorScheme === "light") (await sorting(page)).forEach(fault);
      await context.close();
    }
  }
}
await browser.close();
faults.forEach((fault) => console.error(fault));
console.log(`${pages.length} reports on ${SCREENS.length} screens in ${SCHEMES.length} schemes: ${faults.length} faults; screenshots in ${screenshots}`);
process.exit(faults.length ? 1 : 0);
