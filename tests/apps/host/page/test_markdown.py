"""Markdown as nodes: what it becomes, that it may grow, and that hostile text stays text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page

RENDER = """async (text) => {
  const { markdown } = await import("/markdown.js");
  return markdown(text).innerHTML.replaceAll(' dir="auto"', "");
}"""


SAFE = 'target="_blank" rel="noopener noreferrer"'


@pytest.mark.rule("HPAGE-08")
@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
        ("**a** _b_ ~~c~~ `d`", "<p><strong>a</strong> <em>b</em> <del>c</del> <code>d</code></p>"),
        ("***both*** 2*3*4 snake_case_name", None),
        ("- a\n  - b\n- c", "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"),
        ("a  \nb\\\nc", "<p>a<br>b<br>c</p>"),
        ("---", "<hr>"),
        ("\\*not\\* <b>bold</b> &amp;", "<p>*not* &lt;b&gt;bold&lt;/b&gt; &amp;amp;</p>"),
        ("`` a`b ``", "<p><code>a`b</code></p>"),
    ],
)
def test_markdown_becomes_nodes(modules: Page, text: str, html: str | None) -> None:
    if html is None:
        html = "<p><em><strong>both</strong></em> 2<em>3</em>4 snake_case_name</p>"
    assert modules.evaluate(RENDER, text) == html


@pytest.mark.rule("HPAGE-45")
@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**「重要」**です", "<strong>「重要」</strong>です"),
        ("これは**(注)**です", "これは<strong>(注)</strong>です"),
        ("中文**“强调”。**后文", "中文<strong>“强调”。</strong>后文"),
        ("한국어**(강조)**입니다", "한국어<strong>(강조)</strong>입니다"),
        ("𠮷**「a」**𠮷", "𠮷<strong>「a」</strong>𠮷"),
        ("a*(b)*c", "a*(b)*c"),
        ('a**"b"**c', 'a**"b"**c'),
        ("मै**हि**", "मै<strong>हि</strong>"),
        ("snake_case_名前", "snake_case_名前"),
    ],
)
def test_emphasis_beside_cjk_needs_no_space(modules: Page, text: str, html: str) -> None:
    assert modules.evaluate(RENDER, text) == f"<p>{html}</p>"


@pytest.mark.rule("HPAGE-46")
def test_each_block_has_the_direction_of_its_words(modules: Page) -> None:
    sides = modules.evaluate("""async () => {
      const { markdown } = await import("/markdown.js");
      const node = markdown("שלום עולם\\n\\n- مرحبا\\n- b\\n\\nhello\\n\\n```\\nשלום\\n```");
      document.body.append(node);
      const sides = [...node.children].map((each) => getComputedStyle(each).direction);
      node.remove();
      return sides;
    }""")
    assert sides == ["rtl", "rtl", "ltr", "ltr"]


@pytest.mark.rule("HPAGE-08")
def test_heading_levels_leave_none_out(modules: Page) -> None:
    html = modules.evaluate(RENDER, "### a\n###### b\n# c ##")
    assert html == '<h2 class="level-3">a</h2><h3 class="level-6">b</h3><h2 class="level-1">c</h2>'


@pytest.mark.rule("HPAGE-08")
def test_a_table_scrolls_in_its_box_and_keeps_its_sides(modules: Page) -> None:
    html = modules.evaluate(RENDER, "| a | b |\n|:-:|--:|\n| 1 \\| 2 |\n| `x` | y | z |\nend")
    assert html == (
        '<div class="scrolls" tabindex="0" role="group" aria-label="Table"><table><thead><tr>'
        '<th scope="col" class="center">a</th><th scope="col" class="right">b</th></tr></thead>'
        '<tbody><tr><td class="center brief">1 | 2</td></tr>'
        '<tr><td class="center brief"><code>x</code></td><td class="right brief">y</td></tr>'
        "</tbody></table></div><p>end</p>"
    )


@pytest.mark.rule("HPAGE-08")
def test_code_is_text_with_a_button_that_copies_it(modules: Page) -> None:
    modules.evaluate("""async () => {
      const { markdown } = await import("/markdown.js");
      document.body.replaceChildren(markdown("```html\\n<b>x</b>\\n# no\\n```"));
    }""")
    assert modules.locator("pre").inner_text() == "<b>x</b>\n# no"
    modules.context.grant_permissions(["clipboard-read", "clipboard-write"])
    modules.get_by_role("button", name="Copy").click()
    modules.get_by_text("Copied").wait_for()
    assert modules.evaluate("navigator.clipboard.readText()") == "<b>x</b>\n# no"


@pytest.mark.rule("HPAGE-09")
@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("[a](https://e.org/x)", f'<a href="https://e.org/x" {SAFE}>a</a>'),
        ("[a](mailto:a@e.org)", f'<a href="mailto:a@e.org" {SAFE}>a</a>'),
        ("[a](javascript:alert(1))", "<span>a</span>"),
        ("[a](data:text/html,x)", "<span>a</span>"),
        ("[a](/relative)", "<span>a</span>"),
        ("![a](https://e.org/p.png)", f'<a href="https://e.org/p.png" {SAFE}>a</a>'),
        (
            "see https://e.org/a_(b), or <https://e.org>.",
            f'see <a href="https://e.org/a_(b)" {SAFE}>https://e.org/a_(b)</a>, '
            f'or <a href="https://e.org/" {SAFE}>https://e.org</a>.',
        ),
        ("[a [b](https://e.org) c](https://f.org)", None),
    ],
)
def test_links_go_to_safe_addresses_only(modules: Page, text: str, html: str | None) -> None:
    if html is None:
        html = (
            f'[a <a href="https://e.org/" {SAFE}>b</a> c](<a href="https://f.org/" {SAFE}>'
            "https://f.org</a>)"
        )
    assert modules.evaluate(RENDER, text) == f"<p>{html}</p>"


PIECES = st.sampled_from(
    [
        *(
            "a",
            " ",
            "\n",
            "\n\n",
            "    ",
            "*",
            "**",
            "_",
            "~~",
            "`",
            "```",
            "[x]",
            "(https://e.org)",
        ),
        *(
            "#",
            "- ",
            "1. ",
            "2",
            "> ",
            "|",
            "|-|",
            "---",
            "\\",
            "<b>",
            "https://e.org",
            "\r\n",
            "+",
        ),
    ]
)


@pytest.mark.rule("HPAGE-10")
def test_a_text_that_grows_shows_what_the_whole_of_it_would(modules: Page) -> None:
    @given(st.lists(PIECES, max_size=40))
    def same(pieces: list[str]) -> None:
        grown = modules.evaluate(
            """async (pieces) => {
              const { MarkdownView, markdown } = await import("/markdown.js");
              const view = new MarkdownView();
              let text = "";
              for (const piece of pieces) {
                text += piece;
                view.update(text);
                if (view.node.innerHTML !== markdown(text).innerHTML) {
                  return [text, view.node.innerHTML, markdown(text).innerHTML];
                }
              }
              return null;
            }""",
            pieces,
        )
        assert grown is None

    same()


@pytest.mark.rule("HPAGE-10")
def test_nodes_of_complete_blocks_stay(modules: Page) -> None:
    assert modules.evaluate("""async () => {
      const { MarkdownView } = await import("/markdown.js");
      const view = new MarkdownView();
      view.update("# a\\n\\nfirst\\n\\nsecond\\nline");
      const [heading, first] = view.node.children;
      view.update("# a\\n\\nfirst\\n\\nsecond\\nlines\\n- x");
      return view.node.children[0] === heading && view.node.children[1] === first;
    }""")


@pytest.mark.rule("HPAGE-08")
@pytest.mark.parametrize(
    "piece",
    [
        *("[", "![", "](", "*", "_a", "*a ", "`", "> ", "- ", "<", "~~", "|", "a|\n-|\n"),
        *("http://a.", "((", " ", "# # ", "#", "``` ", "1. ", "\\", "[a](b ", "- - ", "**a _b "),
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(modules: Page, piece: str) -> None:
    count = 60_000 // len(piece)
    script = """async ([piece, count]) => {
      const { markdown } = await import("/markdown.js");
      return markdown(piece.repeat(count) + "x").textContent.length > 0;
    }"""
    assert modules.evaluate(script, [piece, count])


@pytest.mark.rule("HPAGE-08")
def test_any_text_becomes_known_elements_only(modules: Page) -> None:
    known = "p br a span em strong del code pre div ul ol li table thead tbody tr th td hr"
    known += " blockquote h2 h3 h4 h5 h6 button svg path"

    @given(st.lists(PIECES | st.text(max_size=5), max_size=30).map("".join))
    def tame(text: str) -> None:
        used = modules.evaluate(
            """async (text) => {
              const { markdown } = await import("/markdown.js");
              return [...markdown(text).querySelectorAll("*")].map((each) => each.localName);
            }""",
            text,
        )
        assert set(used) <= set(known.split())

    tame()
