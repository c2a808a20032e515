/** Files and pictures of the message that is being written (HPAGE-52): chosen, dropped or pasted, within the host's bounds. */

import { button, el, fill } from "./dom.js";
import { bytes } from "./format.js";

export const MOST_ATTACHMENTS = 8;
// As the host counts them, all of a message together.
const MOST_BYTES = 700 * 1024;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
// A picture beyond is made smaller: models read no more of it.
const MOST_PICTURE_BYTES = 300 * 1024;
const LONGEST_SIDE = 1568;

export class Attachments {
  #taken = []; // {name, data: base64, size, type}
  #kept = null; // a message whose attachments go with this one

  constructor({ onChange }) {
    this.onChange = onChange;
    this.takesPictures = false;
    const choose = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files" });
    choose.addEventListener("change", () => {
      this.add(choose.files);
      choose.value = "";
    });
    this.button = button("Attach files", {
      picture: "clip",
      quiet: true,
      onlyIcon: true,
      class: "attach",
      on: { click: () => choose.click() },
    });
    this.problem = el("p", { class: "problem", role: "status" });
    this.list = el("ul", { class: "attached", "aria-label": "Attachments" });
    this.node = el("div", { class: "attachments" }, choose, this.list, this.problem);
  }

  get isEmpty() {
    return this.#taken.length === 0 && this.#kept === null;
  }

  /** Return what goes with a message: {attachments: [{name, data}], attachmentsOf: the id of another one}. */
  get said() {
    if (this.isEmpty) return {};
    const attachments = this.#taken.map(({ name, data }) => ({ name, data }));
    return { attachments, ...(this.#kept === null ? {} : { attachmentsOf: this.#kept.id }) };
  }

  clear() {
    this.#taken = [];
    this.#kept = null;
    this.problem.textContent = "";
    this.#show();
  }

  /** Let the attachments of a message that is edited go with the new one. */
  keep(item) {
    this.#kept = namesOf(item).length > 0 ? item : null;
    this.#show();
  }

  /** Add what a server has given: [{name, data: base64}]. */
  addData(attachments) {
    for (const { name, data } of Array.isArray(attachments) ? attachments : []) {
      const type = /^(?:iVBORw0KGgo|\/9j\/|R0lGOD|UklGR)/.test(data) ? "image/" : "text";
      this.#try(String(name), () => this.put({ name: String(name), data, size: sizeOfBase64(data), type }));
    }
  }

  /** Let a text go with the message in the place of the one of this name; "" is none. */
  setText(name, text) {
    this.#taken = this.#taken.filter((each) => each.name !== name);
    this.#show();
    const bytes = new TextEncoder().encode(text);
    const data = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    if (text !== "") this.#try(name, () => this.put({ name, data, size: bytes.length, type: "text" }));
  }

  #try(name, put) {
    try {
      put();
    } catch (error) {
      this.problem.textContent = `${name}: ${error.message}`;
    }
  }

  /** Take back those of a message that was not sent. */
  restore(attachments, kept) {
    this.#taken.push(...attachments.map((each) => ({ ...each, size: sizeOfBase64(each.data), type: "" })));
    if (kept !== undefined) this.keep(kept);
    this.#show();
  }

  /** Add files that a person has chosen; what cannot be taken is said. */
  async add(files) {
    this.problem.textContent = "";
    for (const file of files) {
      try {
        this.put(await this.#read(file));
      } catch (error) {
        this.problem.textContent = `${file.name}: ${error.message}`;
      }
    }
  }

  /** Add {name, data, size, type}; throws if there is no room for it. */
  put(attachment) {
    const size = this.#taken.reduce((sum, each) => sum + each.size, attachment.size + sizeOf(this.#kept));
    if (this.#taken.length + namesOf(this.#kept).length >= MOST_ATTACHMENTS)
      throw new Error(`At most ${MOST_ATTACHMENTS} files go with a message.`);
    if (size > MOST_BYTES) throw new Error(`All files of a message together have at most ${bytes(MOST_BYTES)}.`);
    if (attachment.type.startsWith("image/") && !this.takesPictures)
      throw new Error("This model takes no pictures.");
    this.#taken.push(attachment);
    this.#show();
  }

  async #read(file) {
    const isPicture = file.type.startsWith("image/");
    const blob = isPicture ? await fitting(file) : file;
    if (blob.size > MOST_BYTES) throw new Error(`A file has at most ${bytes(MOST_BYTES)}.`);
    if (!isPicture) await mustBeText(blob);
    return { name: nameOf(file), data: await base64(blob), size: blob.size, type: isPicture ? blob.type : "text" };
  }

  #show() {
    const chips = this.#taken.map((each, at) =>
      chip(each.name, { detail: bytes(each.size), onRemove: () => this.#remove(at) }),
    );
    const kept = namesOf(this.#kept).map((name) => chip(name, { onRemove: () => this.keep(null) }));
    fill(this.list, kept, chips);
    this.onChange();
  }

  #remove(at) {
    this.#taken.splice(at, 1);
    this.#show();
    this.button.focus();
  }
}

function chip(name, { detail = "", onRemove }) {
  const remove = button(`Remove ${name}`, { picture: "close", quiet: true, onlyIcon: true, on: { click: onRemove } });
  return el("li", { class: "file" }, el("span", { dir: "auto" }, name), el("span", { class: "muted" }, detail), remove);
}

/** Return the names of the attachments of a message. */
export function namesOf(item) {
  return [...(item?.files ?? []), ...(item?.pictures ?? [])].map(({ name }) => String(name ?? "picture"));
}

/** Return how many bytes the attachments of a message have. */
function sizeOf(item) {
  const sizes = [...(item?.files ?? []), ...(item?.pictures ?? [])].map((each) => each.bytes ?? sizeOfBase64(each.data));
  return sizes.reduce((sum, each) => sum + each, 0);
}

function sizeOfBase64(data) {
  return Math.floor((data.replace(/=+$/, "").length * 3) / 4);
}

/** Make the list of the attachments of a message; null if there are none. */
export function attachedNode({ files, pictures, attachments }) {
  const named = [...(files ?? []), ...(attachments ?? [])].map(({ name }) =>
    el("li", { class: "file" }, el("span", { dir: "auto" }, name)),
  );
  const seen = (pictures ?? []).map(({ name, mimeType, data }) =>
    PICTURES.has(mimeType)
      ? el("li", {}, el("img", { class: "thumbnail", src: `data:${mimeType};base64,${data}`, alt: name ?? "Picture" }))
      : el("li", { class: "file" }, name),
  );
  const all = [...named, ...seen];
  return all.length === 0 ? null : el("ul", { class: "attached", "aria-label": "Attachments" }, all);
}

function nameOf(file) {
  const name = file.name.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, "").slice(-200);
  return name.trim() === "" ? "file" : name;
}

async function mustBeText(blob) {
  const text = await blob.arrayBuffer().then((data) => decoded(data));
  if (text === null || text.trim() === "" || text.includes("\0"))
    throw new Error("Only pictures and texts can be attached, and this is neither.");
}

function decoded(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return null;
  }
}

/** Return a picture as it is if it is small enough, else one that is. */
async function fitting(file) {
  const picture = await createImageBitmap(file).catch(() => {
    throw new Error("This picture cannot be read.");
  });
  const longest = Math.max(picture.width, picture.height);
  if (file.size <= MOST_PICTURE_BYTES && longest <= LONGEST_SIDE && PICTURES.has(file.type)) return file;
  for (let side = Math.min(longest, LONGEST_SIDE); side >= 100; side = Math.floor(side * 0.7)) {
    const scale = side / longest;
    const canvas = el("canvas", {
      width: Math.max(1, Math.round(picture.width * scale)),
      height: Math.max(1, Math.round(picture.height * scale)),
    });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
    if (blob !== null && blob.size <= MOST_PICTURE_BYTES) return blob;
  }
  throw new Error("This picture cannot be made small enough.");
}

function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("It cannot be read."));
    reader.readAsDataURL(blob);
  });
}
