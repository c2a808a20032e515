/** Expands URI templates of RFC 6570, as far as resources have them: {id}, {+path}, {?a,b}, {&a}, {/a}, {.a}, {;a}, {#a}. Pure. */

const EXPRESSION = /\{([+#./;?&]?)([^{}]*)\}/g;
const RULES = {
  "": { first: "", between: ",", isNamed: false, keeps: false },
  "+": { first: "", between: ",", isNamed: false, keeps: true },
  "#": { first: "#", between: ",", isNamed: false, keeps: true },
  ".": { first: ".", between: ".", isNamed: false, keeps: false },
  "/": { first: "/", between: "/", isNamed: false, keeps: false },
  ";": { first: ";", between: ";", isNamed: true, keeps: false },
  "?": { first: "?", between: "&", isNamed: true, keeps: false },
  "&": { first: "&", between: "&", isNamed: true, keeps: false },
};

function names(text) {
  return text
    .split(",")
    .map((each) => each.trim().replace(/\*$|:\d+$/, ""))
    .filter(Boolean);
}

/** Return the variables of a template in order, each once, as {name, isQuery}. */
export function variablesOf(template) {
  const found = new Map();
  for (const [, operator, text] of template.matchAll(EXPRESSION)) {
    for (const name of names(text)) {
      if (!found.has(name)) found.set(name, { name, isQuery: operator === "?" || operator === "&" });
    }
  }
  return [...found.values()];
}

/** Return the URI of a template with values; a variable without one is left out. */
export function expanded(template, values) {
  return template.replaceAll(EXPRESSION, (_, operator, text) => {
    const { first, between, isNamed, keeps } = RULES[operator];
    const parts = names(text)
      .filter((name) => Object.hasOwn(values, name))
      .map((name) => {
        const value = keeps ? encodeURI(values[name]) : strictly(values[name]);
        if (!isNamed) return value;
        return operator === ";" && value === "" ? name : `${name}=${value}`;
      });
    return parts.length > 0 ? first + parts.join(between) : "";
  });
}

function strictly(value) {
  const escape = (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(value).replaceAll(/[!'()*]/g, escape);
}
