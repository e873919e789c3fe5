// Chromium as the tests start it: without a window, a profile of its own, and nothing that it asks for by itself.

import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export function launched(program, profile) {
  return chromium.launchPersistentContext(profile, { executablePath: program, headless: true, args: FLAGS });
}
