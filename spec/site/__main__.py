"""Build the site: `python -m spec.site [FOLDER]`. The folder is build/site by default."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

from . import llms, pages, reference


def build(site: Path, only: tuple[str, ...] = ()) -> int:
    """Build the site anew; return the exit code of Sphinx, for which every warning is an error.

    Args:
        site: the folder of the site; what it holds is deleted.
        only: the pages to write, as paths without a suffix; all of them if there are none. Every
            page is read in any case, and its references are resolved.
    """
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / "source"
        pages.gather(source)
        reference.write(source / "reference")
        settings = Path(__file__).parent
        builder = Sphinx(
            source, settings, site, f"{made}/doctrees", "html", status=None, warningiserror=True
        )
        if only and isinstance(builder.builder, StandaloneHTMLBuilder):
            builder.builder.search = False  # an index of some pages is a warning
            builder.connect("build-finished", _resolve)
        builder.build(filenames=[next(source.glob(f"{page}.*")) for page in only])
        code = builder.statuscode
    if not code:
        # A page may name them in HTML, where Sphinx does not look.
        figures = Path("spec", "guide", "figures")
        shutil.copytree(pages.ROOT / figures, site / figures, dirs_exist_ok=True)
        llms.write(site)
        (site / ".buildinfo").unlink(missing_ok=True)
    return code


def _resolve(builder: Sphinx, error: Exception | None) -> None:
    for page in builder.env.found_docs if error is None else ():
        builder.env.get_and_resolve_doctree(page, builder.builder, tags=builder.tags)


def main() -> int:
    """Build the site that the command line names; return the exit code."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else pages.ROOT / "build" / "site"
    code = build(site)
    if not code:
        sys.stdout.write(f"{site}/index.html\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
