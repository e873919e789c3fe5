"use strict";
// The operator's page: one stream of snapshots, each drawn whole. What tools and clients said becomes text nodes and
// attributes of no meaning; nothing here parses HTML, and the page's policy would not let it.

const RETRY_MILLISECONDS = 3000;
const LINE_WIDTH = 100;
const LINE_HEIGHT = 30;

const place = (id) => document.getElementById(id);

/** An element with properties and children; a child that is text becomes a text node. */
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** An element of SVG with attributes. */
function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, String(value)));
  made.append(...children);
  return made;
}

/** Text with the characters made visible that turn its direction or are no characters to see. */
function visible(text) {
  const code = (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`;
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, code);
}

function duration(seconds) {
  if (seconds < 10) {
    return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  }
  if (seconds < 60) {
    return `${Math.round(seconds)} s`;
  }
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, size]) => seconds >= size);
  const [[unit, size], [lesser, least]] = parts.slice(first, first + 2);
  const rest = Math.floor((seconds % size) / least);
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${lesser}` : ""}`;
}

/** Change the text of an element only if it is another one: a selection in it stays. */
function say(target, text) {
  if (target.textContent !== text) {
    target.textContent = text;
  }
}

/** Replace what an element holds when the data it was made of is another. */
function show(target, data, make) {
  const text = JSON.stringify(data);
  if (target.dataset.made !== text) {
    target.dataset.made = text;
    target.replaceChildren(...make(data));
  }
}

// Tables: a row stays the same element as long as its key is there, so that nothing jumps while it is read. Their roles
// are written out: on a phone they are laid out as cards, and a table that is no table by its style is none by its role.

function table(target, { caption, columns, rows, key, empty, count }) {
  if (rows.length === 0) {
    target.replaceChildren(element("p", { className: "none" }, empty));
    return;
  }
  let body = target.querySelector("tbody");
  if (body === null) {
    const heads = columns.map(({ label, kind }) =>
      element("th", { scope: "col", role: "columnheader", className: kind === "number" ? kind : "" }, label));
    body = element("tbody", { role: "rowgroup" });
    const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads));
    target.replaceChildren(
      element("table", { role: "table" }, element("caption", { className: "hidden" }, caption), head, body),
      element("p", { className: "more", hidden: true }),
    );
  }
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = rows.map((row) => {
    const found = known.get(row[key]) ?? newRow(columns, row[key]);
    columns.forEach(({ text }, at) => say(found.cells[at], visible(text(row))));
    return found;
  });
  if (wanted.length !== body.rows.length || wanted.some((row, at) => row !== body.rows[at])) {
    body.replaceChildren(...wanted);
  }
  const more = target.querySelector(".more");
  more.hidden = count <= rows.length;
  say(more, `and ${count - rows.length} more`);
}

function newRow(columns, key) {
  const row = element("tr", { role: "row" }, ...columns.map(({ label, kind }) => {
    const cell = element("td", { role: "cell", className: kind ?? "" });
    if (kind !== "main") {
      cell.dataset.label = label;
    }
    return cell;
  }));
  row.dataset.key = key;
  return row;
}

const CALLS = [
  { label: "Tool", kind: "main", text: (call) => call.tool },
  { label: "For", kind: "number", text: (call) => duration(call.seconds) },
  { label: "Principal", text: (call) => call.principal },
  { label: "Role", kind: "short", text: (call) => call.role },
  { label: "Call", kind: "code", text: (call) => call.id },
];

const SESSIONS = [
  { label: "Principal", kind: "main", text: (session) => session.principal },
  { label: "Age", kind: "number", text: (session) => duration(session.age_seconds) },
  { label: "Role", kind: "short", text: (session) => session.role },
  { label: "Idle", kind: "number", text: (session) => duration(session.idle_seconds) },
  { label: "Session", kind: "code", text: (session) => `${session.id}\u2026` },
];

function line(name, points, seconds) {
  const most = Math.max(...points, 1);
  const spots = points.map((value, at) => {
    const x = (at / (points.length - 1)) * LINE_WIDTH;
    return `${x.toFixed(2)},${(LINE_HEIGHT - 1 - (value / most) * (LINE_HEIGHT - 3)).toFixed(2)}`;
  });
  const total = points.reduce((sum, value) => sum + value, 0);
  const label = `${name}, last ${duration(seconds)}: ${total} in all, at most ${Math.max(...points)} in ${duration(seconds / points.length)}`;
  return drawn(
    "svg",
    { class: "line", viewBox: `0 0 ${LINE_WIDTH} ${LINE_HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    drawn("line", { x1: 0, y1: LINE_HEIGHT - 1, x2: LINE_WIDTH, y2: LINE_HEIGHT - 1 }),
    drawn("polygon", { points: `0,${LINE_HEIGHT} ${spots.join(" ")} ${LINE_WIDTH},${LINE_HEIGHT}` }),
    drawn("polyline", { points: spots.join(" ") }),
  );
}

const RATES = [["calls", "Calls"], ["errors", "Errors"], ["refusals", "Refused"]];

function tiles(rates) {
  return RATES.map(([name, title]) => element(
    "div",
    { className: `tile ${name}` },
    element("h3", {}, title),
    element("p", { className: "value" }, rates[name].per_second.toFixed(1), element("small", {}, " /s")),
    line(title, rates[name].points, rates.seconds),
  ));
}

const described = (pairs) => pairs.map(([name, value]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, visible(value))));

function errorItem({ tool, kind, principal, id, at, text }) {
  const when = new Date(at * 1000);
  return element(
    "li",
    {},
    element(
      "div",
      { className: "top" },
      element("span", { className: "tool" }, visible(tool)),
      element("span", { className: "kind" }, visible(kind)),
      element("span", { className: "rest" }, visible(principal)),
      element("time", { className: "rest", dateTime: when.toISOString() }, when.toLocaleTimeString()),
      element("span", { className: "rest code" }, visible(id)),
    ),
    element("p", {}, visible(text)),
  );
}

function chips(values, className) {
  return element("ul", { className: "chips" }, ...values.map((value) => element("li", { className }, visible(value))));
}

const TIERS = { full: "good", landlock: "wait", none: "bad" };

function tenant({ role, roots, resolver, tier, missing, children, runs }) {
  const known = tier === "" ? "not known yet" : tier;
  const names = roots.map(({ name, is_writable: writable }) => `${name} \u00b7 ${writable ? "read and write" : "read only"}`);
  const parts = [
    element("div", { className: "top" }, element("h3", {}, visible(role)),
      element("span", { className: `pill ${TIERS[tier] ?? "wait"}` }, `Commands: ${visible(known)}`)),
    element("p", { className: "label" }, `Paths by ${visible(resolver)} \u00b7 children: ${children} \u00b7 runs: ${runs}`),
    element("p", { className: "label" }, "Roots"),
    chips(names, ""),
  ];
  if (missing.length > 0) {
    parts.push(element("p", { className: "label" }, "Not in force"), chips(missing, "missing"));
  }
  return element("div", { className: "card" }, ...parts);
}

function draw(state) {
  const { server, rates, calls, sessions, tenants, errors } = state;
  const sum = (name) => tenants.reduce((total, one) => total + one[name], 0);
  show(place("rates"), rates, tiles);
  const figures = [["In flight", calls.count], ["Sessions", sessions.count], ["Children", sum("children")], ["Runs", sum("runs")]];
  show(place("figures"), figures, described);
  say(place("calls-count"), String(calls.count));
  table(place("calls"), {
    caption: "Calls in flight", columns: CALLS, rows: calls.shown, key: "id", empty: "No call is under way.", count: calls.count,
  });
  say(place("sessions-count"), String(sessions.count));
  table(place("sessions"), {
    caption: "Sessions", columns: SESSIONS, rows: sessions.shown, key: "id", empty: "No session is open.", count: sessions.count,
  });
  say(place("errors-count"), String(errors.count));
  show(place("errors"), errors.shown, (shown) => (shown.length === 0
    ? [element("p", { className: "none" }, "No call has failed.")]
    : [element("ul", { className: "errors" }, ...shown.map(errorItem))]));
  show(place("tenants"), tenants, (all) => all.map(tenant));
  show(place("server"), [
    ["Replica", server.replica || "the only one"],
    ["Stores", `${server.stores}${server.are_stores_fine ? "" : ", can't be reached"}`],
    ["Version", server.version],
    ["Up", duration(server.up_seconds)],
  ], described);
}

// What is told to who does not see the page: that the connection changed, and that calls failed.

let failures = null;

function tell(text) {
  place("told").textContent = text;
}

function tellOf({ errors, server }) {
  if (failures !== null && errors.count > failures) {
    const [last] = errors.shown;
    tell(`${errors.count - failures} calls failed; the last: ${visible(last.tool)}, ${visible(last.kind)}`);
  }
  failures = errors.count;
  link(server.is_draining ? "wait" : "good", server.is_draining ? "Draining" : "Live");
}

function link(kind, text) {
  const pill = place("link");
  if (pill.textContent !== text) {
    pill.className = `pill ${kind}`;
    pill.textContent = text;
    tell(text);
  }
}

const OVER = { draining: "The server ends", unreachable: "Tokens can't be verified" };

function follow() {
  const stream = new EventSource("/console/events");
  stream.onmessage = ({ data }) => {
    const state = JSON.parse(data);
    draw(state);
    tellOf(state);
    document.body.dataset.state = "live";
  };
  stream.addEventListener("over", ({ data }) => {
    stream.close();
    if (data === "logged-out") {
      window.location.reload();
      return;
    }
    document.body.dataset.state = "over";
    link("bad", OVER[data] ?? "Ended");
    again();
  });
  stream.onerror = () => {
    document.body.dataset.state = "lost";
    link("bad", "Connection lost");
    // A refusal closes the stream for good; a lost connection it takes up again by itself.
    if (stream.readyState === EventSource.CLOSED) {
      again();
    }
  };
}

/** Come back later; who was logged out meanwhile gets the form. */
function again() {
  window.setTimeout(async () => {
    const answer = await fetch("/console/state").catch(() => null);
    if (answer !== null && answer.status === 401) {
      window.location.reload();
    } else if (answer === null) {
      again();
    } else {
      follow();
    }
  }, RETRY_MILLISECONDS);
}

follow();
