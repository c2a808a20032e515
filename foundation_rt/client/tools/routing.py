"""Routes from inputs to tools and timeouts (spec/client-routing.md).

::

    router = Router(DOCUMENT_ROUTES)
    routed = router.file("report.pdf", size_bytes=3_000_000)
    await client.call(routed.tool, {"path": "report.pdf"}, timeout=routed.timeout)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from attrs import define, field, frozen

from ..errors import MCPError

if TYPE_CHECKING:
    from os import PathLike

_MIB: Final = 1024 * 1024
_MAX_SHOWN: Final = 32


@frozen
class SizeTimeout:
    """A timeout that grows with the size of the input (ROUTE-02).

    Args:
        base: for an empty one, in s.
        per_mib: for each MiB, in s.
        maximum: for any, in s.
    """

    base: float
    per_mib: float
    maximum: float

    def seconds(self, size_bytes: int) -> float:
        """Return the timeout for an input of that size, in s."""
        return min(self.base + self.per_mib * size_bytes / _MIB, self.maximum)


@frozen
class FileRoute:
    """Files whose names end in `extension`, such as ``.pdf``; the case of letters does not count.

    Args:
        timeout: in s.
    """

    extension: str
    tool: str
    timeout: float | SizeTimeout

    @property
    def key(self) -> tuple[str, ...]:
        """The key in a table; unique."""
        return ("file", self.extension.lower())


@frozen
class UrlRoute:
    """URLs of a scheme, such as ``https``; the case of letters does not count.

    Args:
        timeout: in s.
    """

    scheme: str
    tool: str
    timeout: float

    @property
    def key(self) -> tuple[str, ...]:
        """The key in a table; unique."""
        return ("url", self.scheme.lower())


@frozen
class ExportRoute:
    """Exports of a kind of document, such as ``DoclingDocument``, in a format.

    Args:
        timeout: in s.
    """

    kind: str
    format: str
    tool: str
    timeout: float

    @property
    def key(self) -> tuple[str, ...]:
        """The key in a table; unique."""
        return ("export", self.kind, self.format)


Route = FileRoute | UrlRoute | ExportRoute


class Routed(NamedTuple):
    """The tool to call, and the timeout to call it with, in s."""

    tool: str
    timeout: float


@define(eq=False, repr=False)
class Router:
    """A table of routes, by their input.

    Raises:
        ValueError: two routes are for the same input, or the extension of one has no dot before it.
    """

    routes: Iterable[Route]
    _table: dict[tuple[str, ...], Route] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.routes = tuple(self.routes)
        for route in self.routes:
            if isinstance(route, FileRoute) and not route.extension.startswith("."):
                raise ValueError(f"the extension of {route} must begin with a dot")
            if route.key in self._table:
                raise ValueError(f"two routes are for the same: {self._table[route.key]}, {route}")
            self._table[route.key] = route

    def file(self, path: str | PathLike[str], *, size_bytes: int) -> Routed:
        """Return the tool for a file; of several matching extensions the longest counts (ROUTE-01).

        Args:
            path: its name, with or without directories; it is not opened.
            size_bytes: of the file.

        Raises:
            MCPError: there is none (E204).
            ValueError: `size_bytes` is negative.
        """
        if size_bytes < 0:
            raise ValueError(f"size_bytes must not be negative: {size_bytes}")
        whole = path if isinstance(path, str) else path.__fspath__()
        name = whole.rpartition("/")[2].lower()
        # Not from the first character on: `.pdf` is a hidden file without an extension.
        dot = name.find(".", 1)
        extension = name[dot:] if dot > 0 else ""
        while dot > 0:
            route = self._table.get(("file", name[dot:]))
            if isinstance(route, FileRoute):
                limit = route.timeout
                seconds = limit.seconds(size_bytes) if isinstance(limit, SizeTimeout) else limit
                return Routed(route.tool, seconds)
            extension, dot = name[dot:], name.find(".", dot + 1)
        ending = f"end in {extension[:_MAX_SHOWN]!r}" if extension else "have no extension"
        raise self._no_route(f"no tool takes files that {ending}", "file")

    def url(self, url: str) -> Routed:
        """Return the tool for a URL, by its scheme (ROUTE-03).

        Raises:
            MCPError: there is none (E204). The message does not repeat the URL, which may hold a
                secret.
        """
        scheme, _, rest = url.partition("://")
        route = self._table.get(("url", scheme.lower())) if rest else None
        if isinstance(route, UrlRoute):
            return Routed(route.tool, route.timeout)
        raise self._no_route("no tool takes such a URL", "url")

    def export(self, kind: str, format: str) -> Routed:
        """Return the tool that exports a document of a kind in a format (ROUTE-04).

        Raises:
            MCPError: there is none (E204).
        """
        route = self._table.get(("export", kind, format))
        if isinstance(route, ExportRoute):
            return Routed(route.tool, route.timeout)
        what = f"a {kind[:_MAX_SHOWN]!r} as {format[:_MAX_SHOWN]!r}"
        raise self._no_route(f"no tool exports {what}", "export")

    def _no_route(self, message: str, source: str) -> MCPError:
        """Return the error for an input without a route; it names the known ones."""
        known = sorted(" as ".join(rest) for first, *rest in self._table if first == source)
        action = f"Use one of: {', '.join(known)}." if known else None
        return MCPError("E204", message, suggested_action=action)


_BY_SIZE: Final = SizeTimeout(base=60.0, per_mib=10.0, maximum=600.0)

DOCUMENT_ROUTES: Final[tuple[Route, ...]] = (
    FileRoute(".pdf", "convert_pdf", _BY_SIZE),
    FileRoute(".docx", "convert_docx", _BY_SIZE),
    FileRoute(".xlsx", "convert_xlsx", _BY_SIZE),
    FileRoute(".pptx", "convert_pptx", _BY_SIZE),
    UrlRoute("http", "convert_url", 180.0),
    UrlRoute("https", "convert_url", 180.0),
    ExportRoute("DoclingDocument", "markdown", "export_markdown", 60.0),
    ExportRoute("DoclingDocument", "html", "export_html", 60.0),
    ExportRoute("DoclingDocument", "json", "export_json", 60.0),
)
"""The document-conversion table: eight tools, for files, for web pages, and for what they became
(ROUTE-05; GEO-1.5a-004)."""
