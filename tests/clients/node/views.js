// Shows views in Chromium and says what became of them. Takes one JSON object on standard input:
//   { chromium, profile, scenes: [{ html, context, messages, state, width, scheme, screenshot, ask }] }
// and prints one JSON array with an entry for each scene: what the page holds, what its console printed, where it tried to go.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { launched } from "./browser.js";

const order = JSON.parse(readFileSync(0, "utf8"));
const host = readFileSync(fileURLToPath(new URL("host.html", import.meta.url)), "utf8");
const browser = await launched(order.chromium, order.profile);

async function shown(scene) {
  const page = await browser.newPage();
  const went = [];
  const messages = [];
  page.on("request", (request) => went.push(request.url()));
  page.on("console", (message) => messages.push(message.text()));
  page.on("pageerror", (error) => messages.push(String(error)));
  page.on("dialog", (dialog) => {
    messages.push(`dialog: ${dialog.message()}`);
    return dialog.dismiss();
  });
  await page.emulateMedia({ colorScheme: scene.scheme ?? "light" });
  const width = scene.width ?? 900;
  await page.setViewportSize({ width, height: 700 });
  await page.setContent(host);
  await page.evaluate((given) => window.show(given), scene);
  const frame = await (await page.waitForSelector("iframe")).contentFrame();
  await frame.waitForSelector(`body[data-state="${scene.state ?? "shown"}"]`, { timeout: 30_000 });
  // The frame has grown to the size that the page told, and that is painted.
  const height = await frame.evaluate(() => document.body.scrollHeight);
  await page.waitForFunction((least) => document.querySelector("iframe").clientHeight >= least, height);
  // What lies outside of the window is not painted in a frame of another origin.
  await page.setViewportSize({ width, height: Math.min(Math.max(height, 200), 4000) });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const contents = await frame.evaluate((selectors) => {
    const texts = (selector) => [...document.querySelectorAll(selector)].map((found) => found.innerText);
    return {
      text: document.body.innerText,
      found: Object.fromEntries(selectors.map((selector) => [selector, texts(selector)])),
      tags: [...new Set([...document.querySelectorAll("body *")].map((found) => found.localName))].sort(),
      background: getComputedStyle(document.documentElement).backgroundColor,
      wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      policy: document.querySelector("meta[http-equiv]").content,
    };
  }, scene.ask ?? []);
  if (scene.screenshot) {
    await page.screenshot({ path: scene.screenshot });
  }
  const seen = await page.evaluate(() => window.seen);
  await page.close();
  return { ...contents, went, messages, seen };
}

try {
  // Some at a time: a page mostly waits.
  const results = [];
  const next = order.scenes.entries();
  const work = async () => {
    for (const [place, scene] of next) {
      results[place] = await shown(scene);
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  process.stdout.write(JSON.stringify(results));
} finally {
  await browser.close();
}
