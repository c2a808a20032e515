/**
 * The branches of a chat (CHAT-40, HPAGE-50): a message may go on from an earlier one, and turns are a tree. Pure.
 *
 * A user item and what follows it up to the next is a turn. It goes on from the turn before it, unless it has `after`: the
 * id of the user item that it goes on from, or null for the beginning.
 */

/**
 * Return what is shown of the items: {items, last, forks}. `last`: the id of the last user item among them, null if there
 * is none; `forks`: of each user item the ids that go on from the same one. `chosen` maps the id that several go on from
 * to the one that is shown; else that is shown which leads to the newest turn. `previous`: the id
 * of the turn before them that has not come, null if there is none.
 */
export function branchOf(items, chosen, previous = null) {
  if (!items.some(({ after }) => after !== undefined))
    return { items, last: items.findLast(({ kind }) => kind === "user")?.id ?? previous, forks: new Map() };
  const { turns, parents, children } = treeOf(items, previous);
  // The way back from the newest turn ends at the beginning, or at a turn that has not been loaded.
  const newest = new Set();
  let start = [...turns.keys()].at(-1);
  for (; parents.has(start); start = parents.get(start)) newest.add(start);
  const shown = [...(turns.get(start) ?? [])];
  const forks = new Map();
  let last = start;
  for (let next = children.get(start); next !== undefined; next = children.get(last)) {
    const wanted = chosen.get(last);
    const id = next.includes(wanted) ? wanted : (next.find((each) => newest.has(each)) ?? next.at(-1));
    if (next.length > 1) forks.set(id, next);
    last = id;
    shown.push(...turns.get(id));
  }
  return { items: shown, last, forks };
}

function treeOf(items, previous) {
  let current = previous;
  const turns = new Map([[current, []]]);
  const parents = new Map();
  const children = new Map();
  for (const item of items) {
    if (item.kind === "user") {
      const parent = item.after === undefined ? current : item.after;
      parents.set(item.id, parent);
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(item.id);
      turns.set(item.id, []);
      current = item.id;
    }
    turns.get(current).push(item);
  }
  return { turns, parents, children };
}

/** Return the id of the user item that one among shown items goes on from, null if it is the first. */
export function messageBefore(items, id, previous = null) {
  const users = items.filter(({ kind }) => kind === "user");
  const at = users.findIndex((item) => item.id === id);
  const after = users[at]?.after;
  return after === undefined ? (users[at - 1]?.id ?? previous) : after;
}
