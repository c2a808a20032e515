/** Durations of calls: a chart over time for each tool, with p50 and p95 (DEV-73). Drawn by own code. */

import { el, fill } from "/shared/dom.js";
import { count, precise } from "/shared/format.js";
import { safely } from "/shared/results.js";
import { placeholder } from "./placeholder.js";
import { visible } from "./shown_text.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 440;
const HEIGHT = 132;
const LEFT = 60;
const BOTTOM = 20;
// Percentiles of fewer calls say nothing that the dots don't.
const LEAST_MARKED = 3;
const MOST_POINTS = 300;
const MOST_CHARTS = 30;
const BAD = new Set(["tool_error", "error", "lost"]);
// Their durations are those of people.
const LEFT_OUT = new Set(["input_required", "cancelled"]);

/** Return a percentile of sorted numbers, by the nearest rank. Pure. */
export function percentile(sorted, share) {
  return sorted.length === 0 ? 0 : sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

/** Return the calls that have ended, by method and name: {key, name, calls, p50, p95, slowest, failed}. Pure. */
export function timings(calls) {
  const groups = new Map();
  for (const call of calls) {
    if (typeof call.durationMs !== "number" || LEFT_OUT.has(call.outcome) || call.method === "completion/complete") continue;
    const key = `${call.method} ${call.name ?? ""}`;
    if (!groups.has(key)) groups.set(key, { key, method: call.method, name: call.name ?? call.method, calls: [] });
    groups.get(key).calls.push(call);
  }
  return [...groups.values()]
    .map((group) => {
      const sorted = group.calls.map(({ durationMs }) => durationMs).sort((a, b) => a - b);
      const failed = group.calls.filter(({ outcome }) => BAD.has(outcome)).length;
      return { ...group, p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95), slowest: sorted.at(-1), failed };
    })
    .sort((a, b) => b.calls.length - a.calls.length);
}

export class TimingsView {
  id = "timings";
  title = "Timings";
  picture = "chart";

  constructor(page) {
    this.page = page;
    this.node = el("div", { class: "page charts", tabindex: 0, role: "group", "aria-label": "Charts" });
  }

  async reload() {}

  open() {
    this.#show();
  }

  update(kinds) {
    if (kinds.has("call") && this.node.isConnected) this.#show();
  }

  #show() {
    const groups = timings(this.page.feed.calls);
    const none = placeholder(this.picture, "No call has ended yet.", "Run a tool, or let another client call one.");
    const rest = groups.length - MOST_CHARTS;
    fill(this.node, groups.length > 0 ? groups.slice(0, MOST_CHARTS).map((group) => safely(groupNode, group)) : none, rest > 0 ? el("p", { class: "muted" }, `${count(rest, "more name")}.`) : null);
  }
}

function groupNode({ method, name, calls, p50, p95, slowest, failed }) {
  const facts = [
    ["calls", String(calls.length)],
    ["p50", precise(p50)],
    ["p95", precise(p95)],
    ["slowest", precise(slowest)],
    ["failed", String(failed)],
  ];
  return el(
    "section",
    { class: "card chart", "aria-label": `Timings of ${visible(name, 80)}` },
    el("h2", {}, visible(name, 120), method === "tools/call" ? null : el("span", { class: "muted small" }, ` ${method}`)),
    el("dl", { class: "facts" }, ...facts.map(([label, value]) => el("div", { data: { tone: label === "failed" && failed > 0 ? "bad" : "plain" } }, el("dt", {}, label), el("dd", {}, value)))),
    chart(calls.slice(-MOST_POINTS), { p50, p95, name }),
  );
}

function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Draw calls over time; the height is logarithmic, so that 1 ms and 10 s stand in one picture. */
function chart(calls, { p50, p95, name }) {
  const values = calls.map(({ durationMs }) => Math.max(durationMs, 0.05));
  const low = 10 ** Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(10 ** Math.ceil(Math.log10(Math.max(...values))), low * 10);
  const y = (ms) => 8 + (HEIGHT - BOTTOM - 8) * (1 - Math.log10(Math.max(ms, low) / low) / Math.log10(high / low));
  const from = calls[0].at;
  const span = Math.max(calls.at(-1).at - from, 1000);
  const x = (at) => LEFT + 8 + ((WIDTH - LEFT - 48) * (at - from)) / span;
  const label = `Durations of ${visible(name, 80)}: ${calls.length} calls, p50 ${precise(p50)}, p95 ${precise(p95)}.`;
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": label });
  for (let ms = low; ms <= high * 1.001; ms *= 10) {
    picture.append(shape("line", { x1: LEFT, x2: WIDTH, y1: y(ms), y2: y(ms), class: "grid" }));
    picture.append(shape("text", { x: LEFT - 6, y: y(ms) + 4, class: "tick-text", "text-anchor": "end" }, precise(ms).replace(".0 ", " ")));
  }
  if (calls.length >= LEAST_MARKED) picture.append(...marks(y, { p50, p95 }));
  for (const { at, durationMs, outcome } of calls) {
    const dot = shape("circle", { cx: x(at), cy: y(durationMs), r: 3.5, class: BAD.has(outcome) ? "point bad" : "point" });
    dot.append(shape("title", {}, `${precise(durationMs)}, ${outcome}, ${time(at)}`));
    picture.append(dot);
  }
  picture.append(shape("text", { x: LEFT, y: HEIGHT - 4, class: "tick-text" }, time(from)));
  const until = time(calls.at(-1).at);
  if (until !== time(from)) picture.append(shape("text", { x: WIDTH - 30, y: HEIGHT - 4, class: "tick-text", "text-anchor": "end" }, until));
  return picture;
}

/** Draw p50 and p95 as lines with their names, which never lie on each other. */
function marks(y, { p50, p95 }) {
  const isClose = Math.abs(y(p50) - y(p95)) < 12;
  return [
    ["p95", y(p95), isClose ? -2 : 4],
    ["p50", y(p50), isClose ? 10 : 4],
  ].flatMap(([kind, at, below]) => [
    shape("line", { x1: LEFT, x2: WIDTH - 30, y1: at, y2: at, class: `mark ${kind}` }),
    shape("text", { x: WIDTH - 26, y: at + below, class: "tick-text" }, kind),
  ]);
}

function time(at) {
  return new Date(at).toLocaleTimeString([], { hour12: false });
}
