"""OpenAPI documents as values of JSON: text, bounds, and references.

A document may come from a stranger. Reading it takes memory in proportion to its text: aliases of
YAML are counted as if they were written out, before anything follows them (OAPI-02). Nothing is
fetched: a reference leads to a place in the document, or to a file in the folder of the document.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import orjson
from attrs import define, field

from ..errors import MissingExtraError, UsageError

MAX_BYTES: Final = 64 << 20
MAX_VALUES: Final = 4_000_000
MAX_DEPTH: Final = 200
_MAX_HOPS: Final = 32
_FILES: Final = "x-files-beside"
"""The member of the document under which the files beside it are kept."""

Document = Mapping[str, Any] | Path | str | bytes
"""A document: a mapping, the path of a file, or its text, in JSON or YAML."""


class OpenApiError(UsageError):
    """An OpenAPI document, or one operation of it, cannot be used; the message says why."""


def read_document(document: Document) -> References:
    """Return a document with a way to follow its references.

    Args:
        document: see `Document`; a `str` is a text if it has a line end or begins with `{`, and
            otherwise a path.

    Raises:
        MissingExtraError: it is YAML, and the extra `openapi` is not installed.
        OpenApiError: it is no OpenAPI document of 3.0 or 3.1 (OAPI-01).
    """
    if isinstance(document, Mapping):
        return References(_checked(_copied(document)))
    if isinstance(document, str) and not _is_text(document):
        document = Path(document)
    if isinstance(document, Path):
        return References(_checked(_read_file(document)), document.resolve().parent)
    text = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
    return References(_checked(parse_text(text, "the document")))


def _is_text(document: str) -> bool:
    return "\n" in document or document.lstrip().startswith("{")


def _copied(document: Mapping[str, Any]) -> Any:
    """Return a private copy, as it would be read from a file: with large integers as floats."""

    def text_of_json(value: Any) -> Any:
        return orjson.loads(orjson.dumps(value))

    try:
        try:
            return orjson.loads(orjson.dumps(dict(document), option=orjson.OPT_NON_STR_KEYS))
        except TypeError:  # orjson writes no integer beyond 64 bits
            return orjson.loads(json.dumps(dict(document), default=text_of_json))
    except (TypeError, ValueError, RecursionError) as error:
        raise OpenApiError(f"the document is no JSON: {error}") from None


def _read_file(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise OpenApiError(f"{path} cannot be read: {error.strerror or error}") from None
    return parse_text(text, str(path))


def parse_text(text: bytes, name: str) -> Any:
    """Return the value of a text in JSON or YAML.

    Args:
        text: in UTF-8; at most `MAX_BYTES` long.
        name: of the text, for errors.

    Raises:
        MissingExtraError: it is YAML, and the extra `openapi` is not installed.
        OpenApiError: it is neither, or too large.
    """
    if len(text) > MAX_BYTES:
        raise OpenApiError(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        return orjson.loads(text)
    except ValueError as error:
        if text.lstrip()[:1] in (b"{", b"["):
            raise OpenApiError(f"{name} is not valid JSON: {error}") from None
    try:
        from .yaml_text import parse_yaml
    except ImportError:
        raise MissingExtraError(f"{name} is YAML, which", "openapi") from None
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise OpenApiError(f"{name} is neither JSON nor YAML that can be read: {error}") from None


def _checked(document: Any) -> dict[str, Any]:
    """Return a document of a version that is known (OAPI-01)."""
    if not isinstance(document, dict):
        raise OpenApiError("an OpenAPI document is an object")
    if "swagger" in document:
        raise OpenApiError(
            f"this is Swagger {document['swagger']}; OpenAPI 3.0 or 3.1 is needed: convert it,"
            " for instance with `npx swagger2openapi FILE`"
        )
    version = str(document.get("openapi", ""))
    if not re.fullmatch(r"3\.[012](\..*)?", version):
        raise OpenApiError(
            f"this is no OpenAPI document of 3.0 or 3.1: its `openapi` is {version[:20]!r}"
        )
    return document


@define
class References:
    """A document, and the targets of its references (OAPI-05).

    Attributes:
        document: the OpenAPI document.
        folder: that of the document; references lead to files in it. None: there are no files.
    """

    document: dict[str, Any]
    folder: Path | None = None
    _loaded: dict[str, str] = field(factory=dict, init=False)

    @property
    def has_boolean_limits(self) -> bool:
        """Return whether the document is of 3.0, whose schemas are not those of JSON Schema."""
        return str(self.document["openapi"]).startswith("3.0")

    def follow(self, value: Any) -> Any:
        """Return `value`, or what its `$ref` leads to at last.

        Raises:
            OpenApiError: it leads nowhere, round in a circle, or to what may not be read.
        """
        for _ in range(_MAX_HOPS):
            if not (isinstance(value, dict) and isinstance(value.get("$ref"), str)):
                return value
            value = self.target(value["$ref"])[1]
        raise OpenApiError("a reference leads round in a circle")

    def target(self, reference: str) -> tuple[str, Any]:
        """Return the place in the document that a reference means, and the value there.

        Raises:
            OpenApiError: see `follow`.
        """
        file, _, fragment = reference.partition("#")
        if file:
            fragment = self._load(file) + fragment
        found: Any = self.document
        for part in unquote(fragment).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 9:
                if int(key) >= len(found):
                    raise OpenApiError(f"{reference[:200]!r} leads nowhere")
                found = found[int(key)]
            else:
                raise OpenApiError(f"{reference[:200]!r} leads nowhere")
        return fragment, found

    def _load(self, file: str) -> str:
        """Read a file beside the document; return its place in the document."""
        shown = file[:200]
        if self.folder is None or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", file):
            raise OpenApiError(
                f"the reference {shown!r} leads out of the document, and nothing is fetched:"
                " bundle it into one file, for instance with `npx @redocly/cli bundle`"
            )
        name = posixpath.normpath(unquote(file))
        if name not in self._loaded:
            path = (self.folder / name).resolve()
            if not path.is_relative_to(self.folder):
                raise OpenApiError(f"the reference {shown!r} leads out of the document's folder")
            place = f"/{_FILES}/{len(self._loaded)}"
            content = _relocated(_read_file(path), place, posixpath.dirname(name), 0)
            files = self.document.setdefault(_FILES, {})
            files[str(len(self._loaded))] = content
            self._loaded[name] = place
        return self._loaded[name]


def _relocated(value: Any, place: str, folder: str, depth: int) -> Any:
    """Return the content of a file with references as they are in the document."""
    if depth > MAX_DEPTH:
        raise OpenApiError(f"a file beside the document is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [_relocated(each, place, folder, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    copy = {key: _relocated(each, place, folder, depth + 1) for key, each in value.items()}
    reference = copy.get("$ref")
    if isinstance(reference, str):
        if reference.startswith("#"):
            copy["$ref"] = f"#{place}{reference[1:]}"
        else:
            copy["$ref"] = posixpath.join(folder, reference)
    return copy
