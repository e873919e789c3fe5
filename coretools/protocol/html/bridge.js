"use strict";
// The view's end of the bridge to its host (MCP Apps, 2026-01-26): JSON-RPC 2.0 over postMessage. Whatever comes from
// outside is shown as text: nothing here or in the views parses HTML.

/** An element with properties and children; a child that is text becomes a text node. */
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text with the characters made visible that turn its direction: they make code look like other code. */
function visible(text) {
  const code = (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`;
  return String(text).replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, code);
}

/** The text blocks of a tool result. */
function textOf(result) {
  const blocks = Array.isArray(result.content) ? result.content : [];
  return blocks.filter((block) => block && block.type === "text").map((block) => visible(block.text)).join("\n");
}

/** Meet the host, and draw each tool result with `draw`, which gives a list of elements. */
function view(name, draw) {
  const place = document.getElementById("view");
  const waiting = new Map();
  let count = 0;

  const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");

  function request(method, params) {
    count += 1;
    post({ id: count, method, params });
    return new Promise((resolve, reject) => waiting.set(count, { resolve, reject }));
  }

  function show(state, ...parts) {
    place.replaceChildren(...parts);
    document.body.dataset.state = state;
  }

  function showResult(result) {
    if (result.isError) {
      return show("failed", element("pre", { className: "fault" }, textOf(result)));
    }
    try {
      return show("shown", ...draw(result));
    } catch (error) {
      // A result that this view does not know is still worth reading.
      console.error(error);
      return show("plain", element("pre", { className: "plain" }, textOf(result)));
    }
  }

  function takeContext(context) {
    const root = document.documentElement;
    if (context.theme === "light" || context.theme === "dark") {
      root.dataset.theme = context.theme;
    }
    for (const [key, value] of Object.entries(context.styles?.variables ?? {})) {
      if (key.startsWith("--") && typeof value === "string") {
        root.style.setProperty(key, value);
      }
    }
  }

  const taken = {
    "ui/notifications/tool-result": showResult,
    "ui/notifications/tool-cancelled": (params) =>
      show("cancelled", element("p", { className: "note" }, `cancelled${params.reason ? `: ${params.reason}` : ""}`)),
    "ui/notifications/host-context-changed": takeContext,
  };

  function take(message) {
    const params = message.params ?? {};
    if (message.method === undefined) {
      const { resolve, reject } = waiting.get(message.id) ?? {};
      waiting.delete(message.id);
      return message.error === undefined ? resolve?.(message.result ?? {}) : reject?.(new Error(message.error.message));
    }
    if (message.id === undefined) {
      return taken[message.method]?.(params);
    }
    if (message.method === "ping" || message.method === "ui/resource-teardown") {
      return post({ id: message.id, result: {} });
    }
    return post({ id: message.id, error: { code: -32601, message: "Method not found" } });
  }

  window.addEventListener("message", (event) => {
    const message = event.data;
    if (event.source === window.parent && message && message.jsonrpc === "2.0") {
      take(message);
    }
  });

  function tellSize() {
    const size = document.documentElement;
    const params = { width: Math.ceil(size.scrollWidth), height: Math.ceil(document.body.scrollHeight) };
    post({ method: "ui/notifications/size-changed", params });
  }

  request("ui/initialize", {
    protocolVersion: "2026-01-26",
    appInfo: { name: `coretools-${name}`, version: "1" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
  }).then((met) => {
    takeContext(met.hostContext ?? {});
    post({ method: "ui/notifications/initialized", params: {} });
    new ResizeObserver(tellSize).observe(document.body);
  }, (refused) => show("failed", element("p", { className: "fault" }, refused.message)));
}
