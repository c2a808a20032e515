/** Tools: each as a form made from its schema, or as JSON; its calls below. */

import { AppView } from "/shared/app_view.js";
import { button, el, fill, icon } from "/shared/dom.js";
import { parseJson } from "/shared/exact_numbers.js";
import { markdown } from "/shared/markdown.js";
import { foldable, jsonNode, resultNodes } from "/shared/results.js";
import { isRecord } from "/shared/schema.js";
import { SchemaForm } from "/shared/schema_form.js";
import { ListView } from "./master_detail.js";
import { RunCard, RunList } from "./run_card.js";
import { visible, visibleLines } from "./shown_text.js";
import { Tabs } from "./tabs.js";
import { appOf, toolApp } from "./tool_app.js";

export class ToolsView extends ListView {
  constructor(page) {
    super(page, { id: "tools", title: "Tools", picture: "tools", advice: "A function with `@server.tool` is one." });
  }

  detailOf(tool) {
    return new ToolDetail(this.page, tool);
  }

  async reload() {
    const tools = await this.listed("tools/list");
    this.show(
      tools.map((tool) => ({
        key: tool.name,
        title: tool.title ?? tool.annotations?.title ?? tool.name,
        sub: (tool.title ?? tool.annotations?.title) ? tool.name : firstLine(tool.description),
        data: tool,
      })),
    );
  }
}

/** Return the first line of a description. */
export function firstLine(text) {
  return String(text ?? "").split("\n")[0];
}

const HINTS = [
  ["readOnlyHint", true, "only reads", false],
  ["destructiveHint", true, "may destroy", true],
  ["idempotentHint", true, "may be repeated", false],
  ["openWorldHint", true, "reaches outside", false],
];

class ToolDetail {
  constructor(page, tool) {
    this.page = page;
    this.runs = new RunList(`Calls of ${visible(tool.name, 80)}`);
    this.node = el("div", {});
    this.#show(tool, undefined);
  }

  /** The tool has another definition: what was written stays, as far as it fits. */
  renew({ data }) {
    this.#show(data, carriedOver(this.editor.peek(), this.tool.inputSchema, data.inputSchema));
  }

  update() {
    this.runs.update();
    this.asTask.hidden = !(this.page.feed.state?.servers ?? []).some(({ hasTasks }) => hasTasks);
  }

  #show(tool, value) {
    this.tool = tool;
    this.editor = new ArgumentsEditor(tool, value);
    const run = el("button", { type: "submit", class: "button primary", "aria-keyshortcuts": "Control+Enter" }, icon("play"), el("span", {}, "Run"));
    this.asTask = button("Run as task", { picture: "tasks", hidden: true, on: { click: () => this.#runAsTask() } });
    const clear = button("Reset", { quiet: true, on: { click: () => this.#show(tool, undefined) } });
    const form = el(
      "form",
      { class: "call-form", novalidate: true, "aria-label": `Arguments of ${visible(tool.name, 80)}` },
      this.editor.node,
      el("div", { class: "buttons" }, run, this.asTask, clear, el("span", { class: "muted small run-help" }, "Ctrl+Enter runs")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    fill(this.node, ...headNodes(tool), form, this.runs.node);
    this.update();
  }

  #runAsTask() {
    const value = this.editor.read();
    if (value === undefined) return;
    this.page.tasks.start(this.tool, value);
    location.hash = "#/tasks";
  }

  async #run() {
    const value = this.editor.read();
    if (value === undefined) return;
    const { page, tool } = this;
    const log = (params) => card.message(params);
    const app = appOf(tool) && new AppView(await toolApp(page, tool, { given: value, onLog: log }));
    const card = new RunCard({
      app,
      client: page.client,
      feed: page.feed,
      method: "tools/call",
      params: { name: tool.name, arguments: value },
      title: tool.title ?? tool.name,
      resultNodes,
    });
    this.runs.add(card);
    page.say(`Calling ${tool.name}`);
  }
}

/**
 * Return the arguments for a new definition: the members that the old one did not have, or that are as its defaults,
 * have the new defaults.
 */
function carriedOver(value, before, after) {
  if (!isRecord(value)) return value;
  const isUntouched = (name) => {
    const own = Object.hasOwn(value, name) ? value[name] : undefined;
    const members = before?.properties ?? {};
    const preset = Object.hasOwn(members, name) ? members[name].default : undefined;
    return own === undefined || JSON.stringify(own) === JSON.stringify(preset);
  };
  const renewed = Object.entries(after?.properties ?? {})
    .filter(([name, member]) => member.default !== undefined && isUntouched(name))
    .map(([name, member]) => [name, member.default]);
  return Object.fromEntries([...Object.entries(value), ...renewed]);
}

function headNodes(tool) {
  const annotations = tool.annotations ?? {};
  const isReading = annotations.readOnlyHint === true;
  const hints = HINTS.filter(([name, wanted]) => annotations[name] === wanted && !(isReading && name === "destructiveHint"));
  const title = tool.title ?? annotations.title;
  return [
    el("h2", {}, visible(title ?? tool.name)),
    title ? el("p", { class: "small" }, el("code", {}, visible(tool.name))) : null,
    tool.description ? limited(tool.description) : null,
    hints.length > 0
      ? el("p", { class: "hints" }, ...hints.map(([, , label, isWarning]) => el("span", { class: isWarning ? "chip warning" : "chip" }, label)))
      : null,
    definitionNode(tool),
  ].filter(Boolean);
}

/** Make the node of a description, which is Markdown and may be very long. */
export function limited(text) {
  const shown = text.length > 20_000 ? `${text.slice(0, 20_000)} …` : text;
  return el("div", { class: "description" }, foldable(markdown(visibleLines(shown))));
}

/** Make the node that shows a definition as it came, when it is opened. */
export function definitionNode(definition) {
  const body = el("div", {});
  const details = el("details", { class: "definition" }, el("summary", { class: "small muted" }, "Definition"), body);
  details.addEventListener("toggle", () => details.open && fill(body, jsonNode(definition)));
  return details;
}

/** Arguments as a form and as JSON; what is written in one is in the other. */
class ArgumentsEditor {
  constructor(tool, value) {
    const schema = tool.inputSchema ?? {};
    this.schema = schema;
    this.members = Object.keys(schema.properties ?? {}).length;
    this.text = null;
    this.form = this.#formOf(value);
    this.formBox = el("div", {});
    this.problem = el("p", { class: "problem", role: "alert" });
    this.area = el("textarea", { rows: 8, class: "mono", spellcheck: "false", "aria-label": "Arguments as JSON" });
    this.tabs = new Tabs(
      "Arguments as",
      [
        { id: "form", label: "Form", make: () => this.formBox },
        { id: "json", label: "JSON", make: () => el("div", { class: "field" }, this.area, this.problem) },
      ],
      { onChoose: (id) => this.#chosen(id) },
    );
    this.node = this.tabs.node;
    this.#showForm();
  }

  /** Return the arguments; undefined if something is wrong, which is shown. */
  read() {
    if (this.tabs.chosen === "json") return this.#readText();
    const { value, problems } = this.form.read();
    return problems.length === 0 ? value : undefined;
  }

  peek() {
    return this.tabs?.chosen === "json" ? parsedOr(this.area.value, {}) : this.form.peek();
  }

  #chosen(id) {
    if (this.tabs === undefined) return;
    if (id === "json") {
      this.area.value = JSON.stringify(this.form.peek(), null, 2);
      this.text = this.area.value;
      this.problem.textContent = "";
    } else if (this.text !== null && this.area.value !== this.text) {
      const value = parsedOr(this.area.value, null);
      if (!isRecord(value)) return;
      this.form = this.#formOf(value);
      this.#showForm();
    }
  }

  #formOf(value) {
    return new SchemaForm(this.schema, value, { hasHints: true, isSparse: true });
  }

  #showForm() {
    const none = el("p", { class: "muted small" }, "It takes no arguments.");
    fill(this.formBox, this.members > 0 ? this.form.node : none);
  }

  #readText() {
    try {
      const value = parseJson(this.area.value.trim() === "" ? "{}" : this.area.value);
      if (!isRecord(value)) throw new Error("arguments are an object");
      this.problem.textContent = "";
      this.area.setAttribute("aria-invalid", "false");
      return value;
    } catch (error) {
      this.problem.textContent = `This can't be sent: ${error.message}`;
      this.area.setAttribute("aria-invalid", "true");
      this.area.focus();
      return undefined;
    }
  }
}

function parsedOr(text, other) {
  try {
    return parseJson(text);
  } catch {
    return other;
  }
}

