/** Prompts: their arguments with completion, and the messages that they give. */

import { el, icon } from "/shared/dom.js";
import { CompletingField } from "./completing_field.js";
import { ListView } from "./master_detail.js";
import { messageNodes } from "./questions.js";
import { RunCard, RunList } from "./run_card.js";
import { visible } from "./shown_text.js";
import { definitionNode, firstLine, limited } from "./tools_view.js";

export class PromptsView extends ListView {
  constructor(page) {
    super(page, { id: "prompts", title: "Prompts", picture: "chats", advice: "A function with `@server.prompt` is one." });
  }

  detailOf(prompt) {
    return new PromptDetail(this.page, prompt);
  }

  async reload() {
    const prompts = await this.listed("prompts/list");
    this.show(
      prompts.map((prompt) => ({
        key: prompt.name,
        title: prompt.title ?? prompt.name,
        sub: prompt.title ? prompt.name : firstLine(prompt.description),
        data: prompt,
      })),
    );
  }
}

class PromptDetail {
  constructor(page, prompt) {
    this.page = page;
    this.runs = new RunList(`Uses of ${visible(prompt.name, 80)}`);
    this.node = el("div", {});
    this.renew({ data: prompt });
  }

  renew({ data: prompt }) {
    const { page } = this;
    const values = () => Object.fromEntries(fields.filter(({ value }) => value !== "").map(({ name, value }) => [name, value]));
    const fields = (prompt.arguments ?? []).map(
      ({ name, title, description, required }) =>
        new CompletingField({
          name,
          title,
          description,
          isRequired: required === true,
          complete: page.completer({ type: "ref/prompt", name: prompt.name }, name, values),
        }),
    );
    const get = el("button", { type: "submit", class: "button primary", "aria-keyshortcuts": "Control+Enter" }, icon("play"), el("span", {}, "Get"));
    const form = el(
      "form",
      { class: "call-form", novalidate: true, "aria-label": `Arguments of ${visible(prompt.name, 80)}` },
      el("div", { class: "fields" }, fields.map(({ node }) => node)),
      el("div", { class: "buttons" }, get),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const wrong = fields.filter((field) => !field.check());
      if (wrong.length > 0) wrong[0].input.focus();
      else this.#get(prompt, values());
    });
    this.node.replaceChildren(
      el("h2", {}, visible(prompt.title ?? prompt.name)),
      ...(prompt.title ? [el("p", { class: "small" }, el("code", {}, visible(prompt.name)))] : []),
      ...(prompt.description ? [limited(prompt.description)] : []),
      definitionNode(prompt),
      form,
      this.runs.node,
    );
  }

  update() {
    this.runs.update();
  }

  #get(prompt, values) {
    const { page } = this;
    this.runs.add(
      new RunCard({
        client: page.client,
        feed: page.feed,
        method: "prompts/get",
        params: { name: prompt.name, arguments: values },
        title: prompt.title ?? prompt.name,
        resultNodes: ({ description, messages }) => [
          ...(description ? [el("p", { class: "muted" }, description)] : []),
          messageNodes(messages ?? []),
        ],
      }),
    );
  }
}
