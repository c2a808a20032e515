/** Skills: their front matter, their files with sizes and digests, and each file as the server sends it (DEV-92). */

import { button, el } from "/shared/dom.js";
import { numberOf } from "/shared/exact_numbers.js";
import { count } from "/shared/format.js";
import { contentNodes, safely, valueNode } from "/shared/results.js";
import { ListView } from "./master_detail.js";
import { RpcError } from "./rpc_errors.js";
import { RunCard, RunList } from "./run_card.js";
import { size, visible } from "./shown_text.js";
import { definitionNode, firstLine, limited } from "./tools_view.js";

const UNKNOWN_METHOD = -32601;
const MOST_FILES = 512;

export class SkillsView extends ListView {
  constructor(page) {
    super(page, { id: "skills", title: "Skills", picture: "skills", advice: "`server.skill(\"skills/refunds\")` offers a folder as one." });
  }

  detailOf(skill) {
    return new SkillDetail(this.page, skill);
  }

  async reload() {
    const skills = (await listed(this.page.client)).filter(({ uri }) => typeof uri === "string");
    this.show(
      skills.map((skill) => ({
        key: skill.uri,
        title: String(skill.frontmatter?.name ?? skill.uri),
        sub: firstLine(skill.frontmatter?.description),
        data: skill,
      })),
    );
  }
}

/** Return the skills; a session of this revision is told of no extension, so it has to be asked (SKILL-11). */
async function listed(client) {
  try {
    return await client.list("skills/list", "skills");
  } catch (error) {
    if (error instanceof RpcError && error.code === UNKNOWN_METHOD) return [];
    throw error;
  }
}

class SkillDetail {
  constructor(page, skill) {
    this.page = page;
    this.runs = new RunList(`Reads of ${visible(skill.uri, 80)}`);
    this.node = el("div", {});
    this.renew({ data: skill });
  }

  renew({ data: skill }) {
    const { name, description, ...further } = skill.frontmatter ?? {};
    const files = Array.isArray(skill.resources) ? skill.resources : [];
    const isDynamic = skill.resources === "dynamic";
    const bytes = files.reduce((sum, file) => sum + bytesOf(file?.size), 0);
    const facts = isDynamic ? ["no digests: its files are made when they are read"] : [count(files.length, "file"), size(bytes)];
    const more = files.length - MOST_FILES;
    this.node.replaceChildren(
      el("h2", {}, visible(String(name ?? skill.uri))),
      el("p", { class: "small" }, el("code", {}, visible(skill.uri))),
      ...(typeof description === "string" ? [limited(description)] : []),
      el("p", { class: "hints" }, ...facts.map((fact) => el("span", { class: "chip" }, fact))),
      ...(Object.keys(further).length > 0 ? [el("h3", { class: "small muted" }, "Further front matter"), valueNode(further)] : []),
      definitionNode(skill),
      el("ul", { class: "skill-files", "aria-label": "Files" }, ...files.slice(0, MOST_FILES).map((file) => el("li", {}, safely(() => this.#fileNodes(skill.uri, file), file)))),
      ...(more > 0 ? [el("p", { class: "muted small" }, `${more} more files.`)] : []),
      ...(isDynamic ? [button("Read SKILL.md", { picture: "play", class: "primary", on: { click: () => this.#read(skill.uri, {}) } })] : []),
      this.runs.node,
    );
  }

  update() {
    this.runs.update();
  }

  #fileNodes(skill, file) {
    const { uri } = file;
    const path = uri.startsWith(folderOf(skill)) ? decoded(uri.slice(folderOf(skill).length)) : uri;
    const classes = uri === skill ? "primary" : "";
    return [
      button(visible(path, 200), { picture: "file", class: classes, on: { click: () => this.#read(uri, file) } }),
      el("span", { class: "muted small" }, size(bytesOf(file.size))),
      el("code", { class: "small muted" }, visible(String(file.digest), 100)),
    ];
  }

  #read(uri, file) {
    const { page } = this;
    this.runs.add(
      new RunCard({
        client: page.client,
        feed: page.feed,
        method: "resources/read",
        params: { uri },
        title: uri,
        resultNodes: ({ contents }) => [checkNode(contents, file), ...contentNodes((contents ?? []).map((resource) => ({ type: "resource", resource })))],
      }),
    );
  }
}

/** Make the node that says whether what was read is what the entry says. */
function checkNode(contents, { digest, size: bytes }) {
  const node = el("p", { class: "small muted", role: "status" });
  if (digest === undefined) return node;
  const content = contentOf(contents?.[0] ?? {});
  crypto.subtle.digest("SHA-256", content).then((hash) => {
    const found = [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const isSame = `sha256:${found}` === digest && content.length === numberOf(bytes) && contents?.length === 1;
    node.textContent = isSame ? "Size and digest are those of the entry." : "This is not what the entry says: clients refuse it.";
    node.className = isSame ? "small muted" : "small error-text";
  });
  return node;
}

/** Return a size that a server says, in bytes; 0 of what is none. */
function bytesOf(said) {
  const bytes = numberOf(said);
  return typeof bytes === "number" ? bytes : 0;
}

function contentOf({ text, blob }) {
  if (typeof text === "string") return new TextEncoder().encode(text);
  try {
    return Uint8Array.from(atob(String(blob)), (each) => each.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

function folderOf(uri) {
  return uri.slice(0, uri.lastIndexOf("/") + 1);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
