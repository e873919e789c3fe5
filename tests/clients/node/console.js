// Drives the operator's page in Chromium. Takes one JSON object on standard input:
//   { chromium, profile, url, token, pictures }
// and prints one JSON object: what the page contained at each step, what its console printed, and where it went.
//
// The app beside the page has four paths of the test's own: /begin starts calls, /end lets them fail, /drain ends the
// server, /revoke takes the token away.

import { readFileSync } from "node:fs";

import { launched } from "./browser.js";

const SECONDS = { timeout: 40_000 };

const { chromium: program, profile, url, token, pictures } = JSON.parse(readFileSync(0, "utf8"));
const browser = await launched(program, profile);

const went = new Set();
const messages = [];

async function opened(width, height, colorScheme) {
  const page = await browser.newPage();
  page.on("request", (request) => went.add(request.url()));
  page.on("console", (message) => messages.push(message.text()));
  page.on("pageerror", (error) => messages.push(String(error)));
  page.on("dialog", (dialog) => {
    messages.push(`dialog: ${dialog.message()}`);
    return dialog.dismiss();
  });
  await page.emulateMedia({ colorScheme });
  await page.setViewportSize({ width, height });
  await page.goto(`${url}/console`);
  return page;
}

async function live(page) {
  await page.waitForSelector('body[data-state="live"]', SECONDS);
}

async function told(path) {
  await fetch(`${url}${path}`, { method: "POST" });
}

async function logIn(page, given) {
  await page.getByLabel("Token").fill(given);
  await page.getByRole("button", { name: "Log in" }).click();
}

/** Text, elements, how much wider than the screen it is, and the least contrast of what is written (WCAG 2.2, 1.4.3). */
function contents(page) {
  return page.evaluate(() => {
    const shade = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
    const parsed = (text) => text.match(/[\d.]+/g).map(Number);
    const light = ([red, green, blue]) => 0.2126 * shade(red / 255) + 0.7152 * shade(green / 255) + 0.0722 * shade(blue / 255);
    const behind = (node) => {
      for (let at = node; at !== null; at = at.parentElement) {
        const colour = parsed(getComputedStyle(at).backgroundColor);
        if (colour.length === 3 || colour[3] === 1) {
          return colour;
        }
      }
      return [255, 255, 255];
    };
    let least = { ratio: 21, text: "" };
    for (const node of document.querySelectorAll("body *")) {
      const own = [...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data.trim()).join("");
      if (own === "" || node.closest("noscript, .skip") !== null) {
        continue;
      }
      const [one, other] = [light(parsed(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (other + 0.05);
      if (ratio < least.ratio) {
        least = { ratio, text: own.slice(0, 60) };
      }
    }
    const root = document.documentElement;
    return {
      text: document.body.innerText,
      tags: [...new Set([...document.querySelectorAll("body *")].map((found) => found.localName))].sort(),
      wide: root.scrollWidth - root.clientWidth,
      canary: window.canary ?? null,
      contrast: least,
      lines: [...document.querySelectorAll("svg.line")].map((found) => found.getAttribute("aria-label")),
    };
  });
}

const steps = {};
try {
  const page = await opened(1200, 900, "light");
  steps.form = { ...(await contents(page)), spoken: await page.locator("body").ariaSnapshot() };
  await page.screenshot({ path: `${pictures}/login.png` });
  await logIn(page, "wrong");
  await page.waitForSelector('[role="alert"]', SECONDS);
  steps.wrong = await contents(page);
  await logIn(page, token);
  await live(page);
  steps.quiet = await contents(page);

  await told("/begin");
  await page.waitForSelector("#calls tbody tr:nth-child(3)", SECONDS);
  steps.under_way = { ...(await contents(page)), spoken: await page.locator("body").ariaSnapshot() };
  const row = await page.locator("#calls tbody tr").first().elementHandle();
  const before = await row.textContent();
  await page.waitForFunction(([one, text]) => one.isConnected && one.textContent !== text, [row, before], SECONDS);
  await page.screenshot({ path: `${pictures}/desk.png`, fullPage: true });

  const phone = await opened(390, 844, "dark");
  await live(phone);
  steps.phone = { ...(await contents(phone)), spoken: await phone.locator("body").ariaSnapshot() };
  await phone.screenshot({ path: `${pictures}/phone-busy.png`, fullPage: true });

  await told("/end");
  await page.waitForSelector("#errors li", SECONDS);
  await page.waitForSelector("#calls .none", SECONDS);
  await page.waitForFunction(() => document.getElementById("told").textContent.includes("failed"), null, SECONDS);
  steps.failed = { ...(await contents(page)), told: await page.locator("#told").textContent() };
  await page.screenshot({ path: `${pictures}/desk-errors.png`, fullPage: true });
  await phone.waitForSelector("#errors li", SECONDS);
  steps.phone_failed = await contents(phone);
  await phone.screenshot({ path: `${pictures}/phone.png`, fullPage: true });
  await page.emulateMedia({ colorScheme: "dark" });
  steps.dark = await contents(page);
  await page.screenshot({ path: `${pictures}/desk-dark.png` });

  steps.script_cookie = await page.evaluate(() => document.cookie);
  const [cookie] = await browser.cookies(`${url}/console`);
  steps.cookie = cookie;
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Token").waitFor(SECONDS);
  steps.left = await contents(page);
  await phone.getByLabel("Token").waitFor(SECONDS);
  steps.phone_left = await contents(phone);
  const again = await fetch(`${url}/console/state`, { headers: { Cookie: `${cookie.name}=${cookie.value}` } });
  steps.old_cookie = again.status;

  await logIn(page, token);
  await live(page);
  await told("/drain");
  await page.waitForFunction(() => document.getElementById("link").textContent === "The server ends", null, SECONDS);
  steps.over = await contents(page);
  await told("/revoke");
  await page.getByLabel("Token").waitFor(SECONDS);
  steps.revoked = await contents(page);
  await phone.setViewportSize({ width: 390, height: 844 });
  await phone.screenshot({ path: `${pictures}/phone-login.png` });
  process.stdout.write(JSON.stringify({ steps, went: [...went].sort(), messages }));
} finally {
  await browser.close();
}
