// A unified diff as git prints it, cut in its middle perhaps: files, hunks, line numbers, and what changed in a line.

const CUT = /^\[\.\.\. \d+ lines of this hunk left out \.\.\.\]$/;
const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const KINDS = { " ": "same", "+": "added", "-": "removed" };
const OPEN_ROWS = 400; // of a file; a longer one is folded

/** A name as git writes it: quoted as in C, in UTF-8, where it holds anything unusual. */
function plainName(written) {
  const text = written.replace(/\t$/, "");
  if (!text.startsWith('"') || !text.endsWith('"')) {
    return text;
  }
  const single = { a: 7, b: 8, t: 9, n: 10, v: 11, f: 12, r: 13 };
  const bytes = [];
  const inside = text.slice(1, -1);
  for (const [, octal, letter, rest] of inside.matchAll(/\\([0-7]{3})|\\(.)|([^\\]+)/g)) {
    if (octal !== undefined) {
      bytes.push(parseInt(octal, 8));
    } else if (letter !== undefined) {
      bytes.push(single[letter] ?? letter.charCodeAt(0));
    } else {
      bytes.push(...new TextEncoder().encode(rest));
    }
  }
  const name = new TextDecoder().decode(new Uint8Array(bytes));
  // In a name whatever can't be seen is made visible.
  return name.replace(/[\p{Cc}\p{Cf}]/gu, (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** The name in a line `--- a/name`; empty where there is none. */
function nameIn(line) {
  const name = plainName(line.slice(4));
  return name === "/dev/null" ? "" : name.replace(/^[ab]\//, "");
}

/** Files with their rows, and the lines that belong to none. */
function parsePatch(text) {
  const files = [];
  const others = [];
  let file = null;
  let hunk = null; // lines left of each side, and their numbers
  let loose = false; // behind a cut nobody knows where a line stands

  const begin = (name) => {
    file = { name, before: "", status: "", rows: [], added: 0, removed: 0 };
    files.push(file);
    hunk = null;
    loose = false;
  };

  const row = (kind, code, numbers) => {
    file.rows.push({ kind, code, ...numbers });
    if (kind === "added" || kind === "removed") {
      file[kind] += 1;
    }
  };

  const inHunk = (line) => {
    if (line[0] === "\\") {
      return row("note", line, {});
    }
    const kind = KINDS[line[0] ?? " "];
    const numbers = { old: kind === "added" ? null : hunk.old, new: kind === "removed" ? null : hunk.new };
    if (kind !== "added") {
      hunk.old += 1;
      hunk.oldLeft -= 1;
    }
    if (kind !== "removed") {
      hunk.new += 1;
      hunk.newLeft -= 1;
    }
    return row(kind, line.slice(1), numbers);
  };

  const inHeader = (line) => {
    if (line.startsWith("--- ")) {
      file.before = nameIn(line);
      file.name ||= file.before;
    } else if (line.startsWith("+++ ")) {
      file.name = nameIn(line) || file.before;
    } else if (line.startsWith("rename to ") || line.startsWith("copy to ")) {
      file.name = plainName(line.slice(line.indexOf(" to ") + 4));
      file.status = line.startsWith("copy") ? "copied" : "renamed";
    } else if (line.startsWith("rename from ") || line.startsWith("copy from ")) {
      file.before = plainName(line.slice(line.indexOf(" from ") + 6));
    } else if (line.startsWith("new file mode ")) {
      file.status = "new";
    } else if (line.startsWith("deleted file mode ")) {
      file.status = "deleted";
    } else if (line.startsWith("new mode ")) {
      file.status ||= "mode changed";
    } else if (line.startsWith("Binary files ") || line === "GIT binary patch") {
      file.status = file.status ? `${file.status}, binary` : "binary";
    } else {
      return false;
    }
    return true;
  };

  for (const line of text.split("\n")) {
    if (CUT.test(line)) {
      if (file === null) {
        begin("");
      }
      row("cut", line.slice(1, -1).replaceAll("...", "").trim(), {});
      [hunk, loose] = [null, true];
    } else if (hunk !== null && (hunk.oldLeft > 0 || hunk.newLeft > 0) && /^([ +\\-]|$)/.test(line)) {
      inHunk(line);
    } else if (line.startsWith("diff --git ")) {
      const half = line.slice("diff --git ".length);
      begin(plainName(half.slice(0, (half.length - 1) / 2)).replace(/^a\//, ""));
    } else if (file !== null && HUNK.test(line)) {
      const [, old, oldCount, next, newCount] = line.match(HUNK);
      hunk = { old: +old, new: +next, oldLeft: +(oldCount ?? 1), newLeft: +(newCount ?? 1) };
      loose = false;
      row("hunk", line, {});
    } else if (file !== null && loose && line[0] in KINDS) {
      row(KINDS[line[0]], line.slice(1), {});
    } else if (file !== null && (line.startsWith("\\ ") || inHeader(line))) {
      if (line.startsWith("\\ ")) {
        row("note", line, {});
      }
    } else if (line !== "" && !/^(index|similarity index|dissimilarity index|old mode) /.test(line)) {
      others.push(line);
    }
  }
  return { files, others };
}

/** Where two lines differ: the length of what they begin and end with alike. */
function common(one, other) {
  const most = Math.min(one.length, other.length);
  let start = 0;
  while (start < most && one[start] === other[start]) {
    start += 1;
  }
  let end = 0;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) {
    end += 1;
  }
  return start + end >= most * 0.3 ? { start, end } : null;
}

/** Mark the difference of lines that stand for each other: as many added as were removed before them. */
function markChanges(rows) {
  for (let at = 0; at < rows.length; at += 1) {
    const removed = at;
    while (rows[at]?.kind === "removed") {
      at += 1;
    }
    const count = at - removed;
    let added = 0;
    // Only behind removed lines: looked for from each line of a new file, it would take the square of its length.
    while (count > 0 && rows[at + added]?.kind === "added") {
      added += 1;
    }
    for (let pair = 0; count > 0 && count === added && pair < count; pair += 1) {
      const [one, other] = [rows[removed + pair], rows[at + pair]];
      const alike = common(one.code, other.code);
      one.alike = alike;
      other.alike = alike;
    }
  }
}

function codeCell(row) {
  const { code, alike } = row;
  if (!alike || alike.start + alike.end >= code.length) {
    return element("td", { className: "code" }, code);
  }
  const middle = code.slice(alike.start, code.length - alike.end);
  const marked = element("mark", {}, middle);
  return element("td", { className: "code" }, code.slice(0, alike.start), marked, code.slice(code.length - alike.end));
}

function tableRow(row) {
  if (row.kind === "hunk" || row.kind === "cut") {
    return element("tr", { className: row.kind }, element("td", { colSpan: 4 }, row.code));
  }
  const sign = { added: "+", removed: "\u2212" }[row.kind] ?? "";
  return element(
    "tr",
    { className: row.kind },
    element("td", { className: "number" }, String(row.old ?? "")),
    element("td", { className: "number" }, String(row.new ?? "")),
    element("td", { className: "sign" }, sign),
    codeCell(row),
  );
}

function fileBlock(file) {
  markChanges(file.rows);
  // The first row may span all columns, so their widths stand apart.
  const columns = ["number", "number", "sign", "code"].map((kind) => element("col", { className: kind }));
  const body = element("tbody", {}, ...file.rows.map(tableRow));
  const table = element("table", { className: "diff" }, element("colgroup", {}, ...columns), body);
  const from = file.status === "renamed" || file.status === "copied" ? `${file.before} \u2192 ` : "";
  const summary = element(
    "summary",
    {},
    element("span", { className: "path" }, from + (file.name || "(cut)")),
    file.status ? element("span", { className: "tag" }, file.status) : null,
    ...signs(file.added, file.removed),
  );
  return element("details", { open: file.rows.length > 0 && file.rows.length <= OPEN_ROWS }, summary, file.rows.length ? table : null);
}

function signs(added, removed) {
  return [
    added ? element("span", { className: "plus" }, `+${added}`) : null,
    removed ? element("span", { className: "minus" }, `\u2212${removed}`) : null,
  ];
}

function drawDiff(result) {
  const text = textOf(result);
  const { files, others } = parsePatch(text);
  if (files.length === 0) {
    return [element("pre", { className: "plain" }, text)];
  }
  const sum = (name) => files.reduce((total, file) => total + file[name], 0);
  const said = `${files.length} file${files.length === 1 ? "" : "s"} changed`;
  return [
    element("h1", {}, said, ...signs(sum("added"), sum("removed"))),
    ...others.map((line) => element("p", { className: "note" }, line)),
    ...files.map(fileBlock),
  ];
}

view("diff", drawDiff);
