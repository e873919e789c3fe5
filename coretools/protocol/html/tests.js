// The report of ci_test: what came of it, counts, each failure with its place, and what was printed.

const KINDS = ["failed", "errors", "skipped", "passed"];
const WORDS = { errors: ["error", "errors"] };

function counted(kind, count) {
  const [one, many] = WORDS[kind] ?? [kind, kind];
  return `${count} ${count === 1 ? one : many}`;
}

function verdict(report) {
  const broken = (report.counts.failed ?? 0) + (report.counts.errors ?? 0);
  if (report.timed_out) {
    return ["bad", "Timed out"];
  }
  if (broken > 0) {
    return ["bad", "Failed"];
  }
  if (report.exit_code !== 0) {
    return ["bad", report.exit_code < 0 ? "Ended by a signal" : `Exit code ${report.exit_code}`];
  }
  return report.counts.total > 0 ? ["good", "Passed"] : ["warn", "No test counts found"];
}

function bar(counts) {
  const parts = [...KINDS].reverse().filter((kind) => counts[kind] > 0);
  const said = parts.map((kind) => counted(kind, counts[kind])).join(", ");
  const made = element("div", { className: "bar", role: "img", ariaLabel: said });
  for (const kind of parts) {
    const part = element("i", { className: kind });
    part.style.flexGrow = String(counts[kind]);
    made.append(part);
  }
  return made;
}

function failureItem(failure) {
  const place = failure.file ? `${failure.file}${failure.line > 0 ? `:${failure.line}` : ""}` : "";
  return element(
    "li",
    {},
    element("span", { className: "name" }, visible(failure.name)),
    place ? element("span", { className: "place" }, visible(place)) : null,
    failure.message ? element("pre", {}, visible(failure.message)) : null,
  );
}

function seconds(given) {
  return given >= 60 ? `${Math.floor(given / 60)} min ${Math.round(given % 60)} s` : `${given.toFixed(1)} s`;
}

function drawTests(result) {
  const report = result.structuredContent;
  if (!report || typeof report.counts !== "object" || !Array.isArray(report.failures)) {
    return [element("pre", { className: "plain" }, textOf(result))];
  }
  const { counts, failures } = report;
  const [mood, said] = verdict(report);
  const shown = KINDS.filter((kind) => counts[kind] > 0);
  const text = textOf(result);
  const at = text.indexOf("\n[output]\n");
  const unlisted = (counts.failed ?? 0) + (counts.errors ?? 0) - failures.length;
  return [
    element(
      "h1",
      {},
      element("span", { className: `verdict ${mood}` }, said),
      element("span", { className: "note" }, seconds(Number(report.seconds))),
    ),
    counts.total > 0 ? bar(counts) : null,
    element("ul", { className: "counts" }, ...shown.map((k) => element("li", { className: "tag" }, counted(k, counts[k])))),
    element("code", { className: "note" }, visible(report.command)),
    failures.length ? element("ol", { className: "failures" }, ...failures.map(failureItem)) : null,
    unlisted > 0 && failures.length ? element("p", { className: "note" }, `${unlisted} more not listed`) : null,
    at < 0
      ? null
      : element(
          "details",
          { open: failures.length === 0 },
          element("summary", {}, element("span", { className: "path" }, "Output")),
          element("pre", {}, text.slice(at + "\n[output]\n".length)),
        ),
  ].filter((part) => part !== null);
}

view("tests", drawTests);
