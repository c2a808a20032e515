"""Settings of Sphinx for the site: no part of a page comes from another host."""

from __future__ import annotations

import re
from typing import Any

from sphinx.util.nodes import make_refnode

from foundation_rt.version import __version__

project = "foundation-rt"
version = release = __version__
copyright = "the foundation-rt maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["build"]

myst_heading_anchors = 4
myst_enable_extensions: list[str] = []

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_use_ivar = True

html_theme = "furo"
html_favicon = "../../foundation_rt/apps/web_page/shared/icon.svg"
html_title = f"foundation-rt {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "github-dark"

_CODE = re.compile(r"(?<!`)(`{1,2})([^`]+)\1(?!`)")
_PAGE = re.compile(r"\bspec/([\w-]+)\.md\b")
_EXAMPLE = re.compile(r"(?<![:\n])\n\n(?=    )")


def _from_markdown(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring: code in backticks, links to pages of spec/."""
    text = _CODE.sub(lambda found: rf"\ ``{' '.join(found[2].split())}``\ ", "\n".join(lines))
    if what == "module":  # an indented paragraph is an example, as in Markdown
        text = _EXAMPLE.sub("\n\n::\n\n", text)
    lines[:] = _PAGE.sub(r":doc:`\1.md </spec/\1>`", text).splitlines()


def _public_name(app: Any, env: Any, node: Any, contents: Any) -> Any:
    """Link a name of a signature, which names the module of its class, to the public name."""
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].rpartition(".")[2]
    domain = env.domains["py"]
    places = sorted({each.docname for name, each in domain.objects.items() if _last(name) == last})
    known = sorted(name for name in domain.objects if _last(name) == last)
    if len(places) != 1 or not last[:1].isupper():
        return None
    anchor = domain.objects[known[0]].node_id
    return make_refnode(app.builder, node["refdoc"], places[0], anchor, contents, known[0])


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def setup(app: Any) -> None:
    """Register what is done to docstrings, before napoleon reads their sections, and to links."""
    app.connect("autodoc-process-docstring", _from_markdown, priority=100)
    app.connect("missing-reference", _public_name)
