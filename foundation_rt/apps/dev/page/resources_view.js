/** Resources: read, subscribed to, and found by templates whose variables the server completes. */

import { button, el, icon } from "/shared/dom.js";
import { numberOf } from "/shared/exact_numbers.js";
import { contentNodes } from "/shared/results.js";
import { CompletingField } from "./completing_field.js";
import { ListView } from "./master_detail.js";
import { RunCard, RunList } from "./run_card.js";
import { preciseTime, size, visible } from "./shown_text.js";
import { definitionNode, limited } from "./tools_view.js";
import { expanded, variablesOf } from "./uri_template.js";

export class ResourcesView extends ListView {
  constructor(page) {
    super(page, { id: "resources", title: "Resources", picture: "file", advice: "A function with `@server.resource(\"notes://today\")` is one." });
  }

  detailOf(data) {
    return data.uriTemplate === undefined ? new ResourceDetail(this.page, data) : new TemplateDetail(this.page, data);
  }

  async reload() {
    const resources = await this.listed("resources/list");
    const templates = await this.listed("resources/templates/list", "resourceTemplates");
    this.show([
      ...resources.map((each) => ({ key: each.uri, title: each.title ?? each.name ?? each.uri, sub: each.uri, data: each })),
      ...templates.map((each) => ({
        key: each.uriTemplate,
        title: each.title ?? each.name ?? each.uriTemplate,
        sub: each.uriTemplate,
        mark: "template",
        data: each,
      })),
    ]);
    for (const detail of this.split.details()) await detail.renewSubscription?.();
  }

  /** The server says that a resource has changed. */
  changed(uri) {
    for (const detail of this.split.details()) detail.changed(uri);
  }
}

function headNodes({ title, name, uri, uriTemplate, description, mimeType, size: bytes }) {
  const facts = [mimeType, typeof numberOf(bytes) === "number" ? size(numberOf(bytes)) : null].filter(Boolean);
  return [
    el("h2", {}, visible(title ?? name ?? uri ?? uriTemplate)),
    el("p", { class: "small" }, el("code", {}, visible(uri ?? uriTemplate))),
    description ? limited(description) : null,
    facts.length > 0 ? el("p", { class: "hints" }, ...facts.map((fact) => el("span", { class: "chip" }, visible(fact, 60)))) : null,
  ].filter(Boolean);
}

/** Reads of one URI, and its subscription. */
class Reader {
  constructor(page, runs) {
    Object.assign(this, { page, runs, subscribed: null });
    this.note = el("p", { class: "small muted", "aria-live": "polite" });
  }

  get canSubscribe() {
    return this.page.client.server?.capabilities?.resources?.subscribe === true;
  }

  read(uri) {
    const { page } = this;
    return this.runs.add(
      new RunCard({
        client: page.client,
        feed: page.feed,
        method: "resources/read",
        params: { uri },
        title: uri,
        resultNodes: ({ contents }) => contentNodes((contents ?? []).map((resource) => ({ type: "resource", resource }))),
      }),
    );
  }

  async subscribe(uri, isWanted) {
    const method = isWanted ? "resources/subscribe" : "resources/unsubscribe";
    try {
      await this.page.client.request(method, { uri }).promise;
      this.subscribed = isWanted ? uri : null;
      this.note.textContent = isWanted ? "Subscribed: it is read again when it changes." : "";
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  changed(uri) {
    if (uri !== this.subscribed) return;
    this.note.textContent = `It has changed at ${preciseTime(Date.now())}.`;
    this.read(uri);
  }
}

class ResourceDetail {
  constructor(page, resource) {
    this.runs = new RunList(`Reads of ${visible(resource.uri, 80)}`);
    this.reader = new Reader(page, this.runs);
    this.node = el("div", {});
    this.renew({ data: resource });
  }

  renew({ data: resource }) {
    const read = button("Read", { picture: "play", class: "primary", "aria-keyshortcuts": "Control+Enter", on: { click: () => this.reader.read(resource.uri) } });
    this.toggle = button("Subscribe", { "aria-pressed": String(this.reader.subscribed !== null) });
    this.toggle.hidden = !this.reader.canSubscribe;
    this.toggle.addEventListener("click", async () => {
      await this.reader.subscribe(resource.uri, this.reader.subscribed === null);
      this.toggle.setAttribute("aria-pressed", String(this.reader.subscribed !== null));
    });
    this.node.replaceChildren(...headNodes(resource), definitionNode(resource), el("div", { class: "buttons actions" }, read, this.toggle), this.reader.note, this.runs.node);
  }

  /** A new session knows nothing of the subscription. */
  async renewSubscription() {
    const uri = this.reader.subscribed;
    this.toggle.hidden = !this.reader.canSubscribe;
    if (uri === null) return;
    this.reader.subscribed = null;
    await this.reader.subscribe(uri, true);
    this.toggle.setAttribute("aria-pressed", String(this.reader.subscribed !== null));
  }

  changed(uri) {
    this.reader.changed(uri);
  }

  update() {
    this.runs.update();
  }
}

class TemplateDetail {
  constructor(page, template) {
    this.page = page;
    this.runs = new RunList(`Reads of ${visible(template.uriTemplate, 80)}`);
    this.reader = new Reader(page, this.runs);
    this.node = el("div", {});
    this.renew({ data: template });
  }

  renew({ data: template }) {
    const { uriTemplate } = template;
    const values = () => Object.fromEntries(fields.filter(({ value }) => value !== "").map(({ name, value }) => [name, value]));
    const fields = variablesOf(uriTemplate).map(
      ({ name, isQuery }) =>
        new CompletingField({
          name,
          isRequired: !isQuery,
          complete: this.page.completer({ type: "ref/resource", uri: uriTemplate }, name, values),
        }),
    );
    const shown = el("code", {}, visible(expanded(uriTemplate, values())));
    const form = el(
      "form",
      { class: "call-form", novalidate: true, "aria-label": `Variables of ${visible(uriTemplate, 80)}` },
      el("div", { class: "fields" }, fields.map(({ node }) => node)),
      el("p", { class: "small" }, shown),
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "button primary", "aria-keyshortcuts": "Control+Enter" }, icon("play"), el("span", {}, "Read"))),
    );
    form.addEventListener("input", () => (shown.textContent = visible(expanded(uriTemplate, values()))));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const wrong = fields.filter((field) => !field.check());
      if (wrong.length > 0) wrong[0].input.focus();
      else this.reader.read(expanded(uriTemplate, values()));
    });
    this.node.replaceChildren(...headNodes(template), definitionNode(template), form, this.runs.node);
  }

  changed() {}

  update() {
    this.runs.update();
  }
}

