"""Hostile texts and results for the modules that show them, in a real browser (HPAGE-33).

`python -m tests.apps.host.page.fuzz`, that is `make fuzz`, shows 100,000 of them and prints the
slowest and those with the most nodes. An input is a list of segments, each a text that is repeated:
the browser joins them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from math import inf
from typing import Any

from attrs import evolve, field, frozen
from playwright.sync_api import CDPSession, Page

from tests.lab.host.scripted_host import scripted_host
from tests.lab.pages.chromium import chromium, watched_page

SUSPECT_MS = 200
"""What lasts longer (HPAGE-33) is shown again beside a reference: the machine may be slow."""

MOST_REFERENCES = 6
"""The dearest input has been seen to last for 2.8."""

MOST_NODES_PER_BYTE = 50
LONGEST = 50_000
BATCH = 250

Segments = list[tuple[str, int]]

UNITS = [
    *("|", "a|", "|a", "|-", "|-|\n", "a|b\n-|-\n", "|\n", "|:-:", "\\|", "||\n|-|-\n"),
    *("*", "*a ", "**a ", "a*", "***", "_", "__a", "_a_", "~", "~~", "~~a ", "*_", "a**b"),
    *("`", "``", "`a", "``a`", "```\n", "```a\n", "~~~\n", "`` ` "),
    *("[", "![", "]", "](", "[](", "[a](b", "[a](<", "[a](b \"", "(", ")", "[]"),
    *("[a](http://e.org) ", "[a](http://e.org)", "> ", ">", ">\n", "> a\n", "> - > - a\n"),
    *("- ", "-\n", "- a\n", "* ", "+ ", "1. ", "1.\n", "1) a\n", "1. a\n2. b\n", "  - a\n", "    "),
    *("- - - - - - a\n", "- ```\na\n", "```\na\n```\n", "**a** ", "*a*", "~~a~~", "> a\n\n"),
    *("\n", "\n\n", " ", "\t", "  \n", "a  \n", "a\n\n", "\\", "\\*", "\\\n", "\r\n", "\r", "\x00"),
    *("\u2028", "\u202e", "\u00a0", "é", "🙂", "\ud83d", "`a`", "http://e.org "),
    *("#", "# ", "# a\n", "#\n", " #", "---\n", "***\n", "- - ", "a\n===\n", "="),
    *("<", "<a>", "<!--", "<http://e.org>", "<http://", "&amp;", "&#0;", "&"),
    *("http://a.", "http://[", "https://e.org ", "mailto:a", "h", "m", "http://e.org/).", "://"),
    *("a", "a ", "word\n", "{", "[{", "[[", '{"a":', '"', "}", "1", ",", "null", "."),
]  # fmt: skip

TEMPLATES: list[list[str]] = [
    ["|a", "\n|", "-|", "\n", "|\n"],
    ["|", "\n", "-|", "\n", "a|b|c\n"],
    ["- ", "a", "\n"],
    ["> ", "- ", "a\n"],
    ["*a ", "b", "a* "],
    ["[", "a", "](http://e.org)"],
    ["`", "a", "`"],
    ["~", "`"],
]

NAMES = [
    "__proto__",
    "constructor",
    "toString",
    "a",
    "type",
    "text",
    "result",
    "0",
    "",
    "content",
    "\u202e",
]
BIG = [
    ('{"content":[', '{"type":"text","text":"1"},', "{}]}"),
    ('{"content":[', '{"type":"text","text":"# a"},', '{}],"structuredContent":{"a":[1,2,3]}}'),
    ('{"structuredContent":{"a":', "[", "1", "]", "}}"),
    ('{"structuredContent":', '{"a":', "1", "}", "}"),
    ('{"structuredContent":{"a":[', '{"a":1,"b":"c"},', "{}]}}"),
    ('{"structuredContent":[', '{"constructor":1},{"a":2},', '{"b":3}]}'),
    ('{"structuredContent":{"result":[', "[1,2],", "[]]}}"),
    ('{"structuredContent":[', '{"a":{"b":{"c":{"d":{"e":[{"f":1}]}}}}},', "{}]}"),
    ('{"structuredContent":{"a":"', "# x ", '"}}'),
]


@frozen
class Input:
    """One input: its segments, shown as `markdown`, `text` of a result, or `result` in JSON."""

    kind: str
    segments: Segments


@frozen
class Shown:
    """What an input cost.

    Attributes:
        bytes: its length in UTF-8.
        ms: the time it took.
        plain: nodes that are plain text with a note.
        error: what it threw.
        references: if it is suspect, for how many references its processor was busy.
    """

    given: Input
    bytes: int
    nodes: int
    ms: float
    plain: int
    error: str | None = field(default=None)
    references: float = 0.0

    @property
    def is_wrong(self) -> bool:
        """Whether it is beyond a bound, or threw an error."""
        too_many = self.nodes > MOST_NODES_PER_BYTE * max(1, self.bytes)
        return self.error is not None or self.references > MOST_REFERENCES or too_many

    def __str__(self) -> str:
        segments = [(text[:60], times) for text, times in self.given.segments[:6]]
        cost = f"{self.ms:.0f} ms, {self.nodes} nodes, {self.bytes} bytes"
        if self.references:
            cost += f", as long as {self.references:.1f} references"
        return f"{cost}, {self.given.kind}: {segments} {self.error or ''}"


def inputs(seed: int, many: int) -> Iterator[Input]:
    """Yield so many inputs, the same for the same seed."""
    draw = random.Random(seed)
    yield from WHOLE[:many]
    for _ in range(many - len(WHOLE)):
        kind = draw.choice(["markdown", "markdown", "text", "result"])
        if kind == "result":
            yield Input(
                kind, _big(draw) if draw.random() < 0.1 else [(json.dumps(_result(draw)), 1)]
            )
        else:
            yield Input(
                kind, draw.choice([_document, _document, _document, _repeated, _template])(draw)
            )


def _document(draw: random.Random) -> Segments:
    return [("".join(draw.choices(UNITS, k=draw.randint(1, 80))), 1)]


def _length(draw: random.Random) -> int:
    """Return a length, of which a tenth is long."""
    return draw.randint(1, LONGEST if draw.random() < 0.1 else LONGEST // 50)


def _repeated(draw: random.Random) -> Segments:
    pieces = draw.randint(1, 4)
    most = _length(draw) // pieces
    same = draw.randint(1, max(1, most // 6))
    is_matched = draw.random() < 0.5
    found: Segments = []
    for _ in range(pieces):
        unit = "".join(draw.choices(UNITS, k=draw.randint(1, 3)))
        found.append((unit, same if is_matched else max(1, draw.randint(0, most) // len(unit))))
    return found


def _template(draw: random.Random) -> Segments:
    units = draw.choice(TEMPLATES)
    many = max(1, _length(draw) // sum(map(len, units)))
    return [(unit, 1 if unit.startswith("\n") else many) for unit in units]


def _big(draw: random.Random) -> Segments:
    first, unit, *rest = draw.choice(BIG)
    many = max(1, _length(draw) // (2 * len(unit)))
    return [(first, 1), (unit, many), *zip(rest, (1, many, 1), strict=False)]


def _value(draw: random.Random, depth: int = 0) -> Any:
    scalars = [
        None,
        True,
        0,
        -1.5,
        2**53,
        "",
        "a",
        "x" * 3000,
        "| a |\n|-|\n",
        '{"a": 1}',
        "[1",
        *NAMES,
    ]
    choice = draw.random()
    if depth > 5 or choice < 0.5:
        return draw.choice(scalars)
    if choice < 0.7:
        return [_value(draw, depth + 1) for _ in range(draw.randint(0, 5))]
    if choice < 0.8:
        names = draw.sample(NAMES, 3)
        return [
            {name: draw.choice(scalars) for name in names[: draw.randint(1, 3)]} for _ in range(4)
        ]
    return {draw.choice(NAMES): _value(draw, depth + 1) for _ in range(draw.randint(0, 5))}


def _block(draw: random.Random) -> Any:
    kinds = ["text", "image", "audio", "resource", "resource_link", "new", *NAMES]
    block: dict[str, Any] = {
        "type": draw.choice(kinds),
        "text": "**a**",
        "data": "AAAA",
        "uri": "https://e.org",
    }
    block |= {
        "mimeType": "image/png",
        "name": "a",
        "resource": {"uri": "a:b", "text": "{}", "mimeType": "text/markdown"},
    }
    for _ in range(draw.randint(0, 3)):
        block[draw.choice(list(block))] = _value(draw)
    return block if draw.random() < 0.9 else _value(draw)


def _result(draw: random.Random) -> Any:
    if draw.random() < 0.1:
        return _value(draw)
    result: dict[str, Any] = {"content": [_block(draw) for _ in range(draw.randint(0, 4))]}
    if draw.random() < 0.5:
        result["structuredContent"] = _value(draw)
    if draw.random() < 0.1:
        result["content"] = _value(draw)
    return result


def _whole() -> Iterator[Input]:
    """Yield each construct as long as an input may be."""
    for unit in UNITS:
        many = LONGEST // len(unit.encode("utf-8", "surrogatepass"))
        for kind in ("markdown", "text"):
            yield Input(kind, [(unit, many), ("x", 1)])
    for units in TEMPLATES:
        many = LONGEST // sum(map(len, units))
        yield Input("markdown", [(unit, 1 if unit.startswith("\n") else many) for unit in units])
    for first, unit, *rest in BIG:
        many = LONGEST // (len(unit) + (len(rest[1]) if len(rest) == 3 else 0))
        yield Input("result", [(first, 1), (unit, many), *zip(rest, (1, many, 1), strict=False)])


WHOLE = list(_whole())

_SHOW = """async (inputs) => {
  const { markdown } = await import("/markdown.js");
  const { resultNodes } = await import("/results.js");
  const makers = {
    markdown: (text) => [markdown(text)],
    text: (text) => resultNodes({ content: [{ type: "text", text }] }),
    result: (text) => resultNodes(JSON.parse(text)),
  };
  const nodesOf = (root) => {
    const walker = document.createTreeWalker(root);
    let many = 1;
    while (walker.nextNode()) many += 1;
    return many;
  };
  return inputs.map(([kind, segments]) => {
    const text = segments.map(([unit, times]) => unit.repeat(times)).join("");
    const cost = { bytes: new Blob([text]).size, nodes: 0, ms: 0, plain: 0, error: null };
    const before = performance.now();
    try {
      const nodes = makers[kind](text);
      cost.ms = performance.now() - before;
      cost.nodes = nodes.map(nodesOf).reduce((a, b) => a + b, 0);
      const isPlain = (node) => node.matches(".plain") || node.querySelector(".plain");
      cost.plain = nodes.filter(isPlain).length;
    } catch (error) {
      return { ...cost, ms: performance.now() - before, error: String(error) };
    }
    return cost;
  });
}"""


_REFERENCE = """(characters) => {
  const all = document.createElement("div");
  for (let at = 0; at < characters; at += 2) {
    const each = document.createElement("p");
    each.append(`a${at}`);
    all.append(each);
  }
}"""
"""A node for each character of the longest input: the plainest work that grows with it."""


def show(page: Page, given: list[Input]) -> list[Shown]:
    """Show inputs on a page that has the modules; return what each cost."""
    costs = page.evaluate(_SHOW, [[each.kind, each.segments] for each in given])
    shown = [Shown(each, **cost) for each, cost in zip(given, costs, strict=True)]
    return [
        evolve(each, references=_references(page, each.given)) if each.ms > SUSPECT_MS else each
        for each in shown
    ]


def _references(page: Page, given: Input) -> float:
    """Show an input again, a reference before and behind it; return how many of them it lasts.

    What disturbs one attempt passes: another one follows until the input is within the bound.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu_ms(script: str, argument: Any) -> float:
        before = _thread_ms(session)
        page.evaluate(script, argument)
        return _thread_ms(session) - before

    least = inf
    for _ in range(5):
        before = cpu_ms(_REFERENCE, LONGEST)
        spent = cpu_ms(_SHOW, [[given.kind, given.segments]])
        least = min(least, spent / min(before, cpu_ms(_REFERENCE, LONGEST)))
        if least <= MOST_REFERENCES:
            break
    session.detach()
    return least


def _thread_ms(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * float(each["value"]) for each in metrics if each["name"] == "ThreadTime")


def run(page: Page, seed: int, many: int) -> Iterator[list[Shown]]:
    """Show so many inputs of a seed, in batches."""
    waiting: list[Input] = []
    for each in inputs(seed, many):
        waiting.append(each)
        if len(waiting) == BATCH:
            yield show(page, waiting)
            waiting = []
    yield show(page, waiting)


def main() -> int:
    """Run the fuzzer from the command line; return 1 if an input is beyond a bound."""
    words = argparse.ArgumentParser(prog="python -m tests.apps.host.page.fuzz", description=__doc__)
    words.add_argument("--inputs", type=int, default=100_000)
    words.add_argument("--seed", type=int, default=1)
    chosen = words.parse_args()
    all_shown: list[Shown] = []
    with scripted_host() as host, chromium() as browser, watched_page(browser, host.url) as watched:
        watched.may_lose = True  # pictures that are none
        for batch in run(watched.page, chosen.seed, chosen.inputs):
            all_shown += batch
            for each in batch:
                if each.is_wrong:
                    print("WRONG", each)
            print(f"\r{len(all_shown)} of {chosen.inputs}", end="", file=sys.stderr, flush=True)
    plain = sum(each.plain > 0 for each in all_shown)
    print(f"\nseed {chosen.seed}, {len(all_shown)} inputs, {plain} of them as plain text")
    print("slowest:", *sorted(all_shown, key=lambda each: -each.ms)[:8], sep="\n  ")
    dense = sorted(all_shown, key=lambda each: -each.nodes / max(1, each.bytes))[:5]
    print("most nodes for a byte:", *dense, sep="\n  ")
    print("most nodes:", *sorted(all_shown, key=lambda each: -each.nodes)[:5], sep="\n  ")
    return int(any(each.is_wrong for each in all_shown))


if __name__ == "__main__":
    sys.exit(main())
