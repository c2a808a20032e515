"""OpenAPI documents as values of JSON: text, bounds, and references.

A document may come from a stranger. Reading it takes memory in proportion to its text: aliases of
YAML are counted as if they were written out, before anything follows them (OAPI-02). Nothing is
fetched: a reference leads to a place in the document, or to a file in the folder of the document.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import orjson
from attrs import define, field

from ...base.files import path_below
from ...base.jsonschema.references import at_pointer
from ...errors import MissingExtraError, UsageError

MAX_BYTES: Final = 64 << 20
MAX_VALUES: Final = 1_000_000
MAX_DEPTH: Final = 200
_MAX_HOPS: Final = 32
_FEW_SCHEMAS: Final = 30_000
_MOST_SCHEMAS: Final = 300_000
"""Honest documents of a MiB have 10,000 schemas; 100,000 of them take 2 s."""

T = TypeVar("T")

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
        copy, size = _copied(document)
        return References(_checked(copy), None, size)
    if isinstance(document, str) and "\n" not in document and document.lstrip()[:1] != "{":
        document = Path(document)
    if isinstance(document, Path):
        value, size = _read_file(document)
        return References(_checked(value), document.resolve().parent, size)
    text = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
    return References(_checked(parse_text(text, "the document")), None, len(text))


def _copied(document: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a private copy, as it would be read from a file, and its size as a text."""

    def text_of_json(value: Any) -> Any:
        return orjson.loads(orjson.dumps(value))

    try:
        try:
            text = orjson.dumps(dict(document), option=orjson.OPT_NON_STR_KEYS)
        except TypeError:  # orjson writes no integer beyond 64 bits
            text = json.dumps(dict(document), default=text_of_json).encode()
        return orjson.loads(text), len(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise OpenApiError(f"the document is no JSON: {error}") from None


def _read_file(path: Path) -> tuple[Any, int]:
    """Return the value of a file, and the size of its text."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise OpenApiError(f"{path} cannot be read: {error.strerror or error}") from None
    return parse_text(text, str(path)), len(text)


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
        from ...base.yaml_text import parse_yaml
    except ImportError:
        raise MissingExtraError(f"{name} is YAML, which", "openapi") from None
    try:
        return parse_yaml(text, max_values=MAX_VALUES, max_depth=MAX_DEPTH)
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


def object_at(value: Any, *names: str) -> dict[str, Any]:
    """Return the object that members of a value of a document lead to; empty if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def list_at(value: Any, *names: str) -> list[Any]:
    """Return the list that is the last of these members; empty if there is none."""
    found = object_at(value, *names[:-1]).get(names[-1])
    return found if isinstance(found, list) else []


@define(eq=False)
class References:
    """A document, and the targets of its references (OAPI-05).

    Attributes:
        document: the OpenAPI document.
        folder: that of the document; references lead to files in it. None: there are no files.
        size: of its text and the files that were read, in bytes.
    """

    document: dict[str, Any]
    folder: Path | None
    size: int
    _schemas: int = field(default=0, init=False)
    _files: dict[str, Any] = field(factory=dict, init=False)
    _loaded: dict[str, str] = field(factory=dict, init=False)
    _targets: dict[str, tuple[str, Any]] = field(factory=dict, init=False)
    _extensions: dict[int, list[str]] | None = field(default=None, init=False)
    _found: dict[Any, Any] = field(factory=dict, init=False)

    @property
    def has_boolean_limits(self) -> bool:
        """Return whether the document is of 3.0, whose schemas are not those of JSON Schema."""
        return str(self.document["openapi"]).startswith("3.0")

    def count_schema(self) -> None:
        """Count a schema, of those that references and aliases unfold into (OAPI-48).

        Raises:
            OpenApiError: there are too many.
        """
        self._schemas += 1
        most = min(_MOST_SCHEMAS, _FEW_SCHEMAS + self.size // 4)
        if self._schemas > most:
            raise OpenApiError(
                f"the document unfolds into more than {most:,} schemas: include fewer operations"
            )

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
        known = self._targets.get(reference)
        if known is None:
            known = self._targets[reference] = self._find(reference)
        return known

    def once(self, read: Callable[..., T], part: Any, *more: Any) -> T:
        """Return `read(part, *more)`; many references share a part of the document."""
        key = (read, id(part), more)
        if key not in self._found:
            self._found[key] = part, read(part, *more)  # kept: its id is not given to another
        found: T = self._found[key][1]
        return found

    def extensions(self, schema: dict[str, Any]) -> list[str]:
        """Return the names of the schemas of the document that have `schema` in their `allOf`."""
        if self._extensions is None:
            self._extensions = {}
            for name, part in _parts_of_schemas(self.document):
                try:
                    supertype = self.target(part)[1]
                except OpenApiError:
                    continue
                self._extensions.setdefault(id(supertype), []).append(name)
        return self._extensions.get(id(schema), [])

    def _find(self, reference: str) -> tuple[str, Any]:
        file, _, fragment = reference.partition("#")
        if file:
            fragment = self._load(file) + fragment
        place, slash, rest = unquote(fragment).partition("/")
        found = at_pointer(self._files.get(place) if place else self.document, slash + rest)
        if found is None:
            raise OpenApiError(f"{reference[:200]!r} leads nowhere")
        return fragment, found

    def _load(self, file: str) -> str:
        """Read a file beside the document; return its place, with which pointers into it begin."""
        shown = file[:200]
        if self.folder is None or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", file):
            raise OpenApiError(
                f"the reference {shown!r} leads out of the document, and nothing is fetched:"
                " bundle it into one file, for instance with `npx @redocly/cli bundle`"
            )
        name = posixpath.normpath(unquote(file))
        if name not in self._loaded:
            place = str(len(self._loaded))
            value, size = _read_file(self._path_of(name, shown))
            self._files[place] = _relocated(value, place, posixpath.dirname(name), 0)
            self.size += size
            self._loaded[name] = place
        return self._loaded[name]

    def _path_of(self, name: str, shown: str) -> Path:
        """Return the path of a file beside the document.

        Raises:
            OpenApiError: it is not in the folder, hidden, or no file.
        """
        assert self.folder is not None
        try:
            path = path_below(self.folder, name)
            is_file = path is not None and path.is_file()
        except (OSError, ValueError):  # no name of a file
            raise OpenApiError(f"the reference {shown!r} leads to no file") from None
        if path is None:
            raise OpenApiError(f"the reference {shown!r} leads out of the document's folder")
        if any(part.startswith(".") for part in path.relative_to(self.folder).parts):
            raise OpenApiError(f"the reference {shown!r} leads to a hidden file")
        if not is_file:
            raise OpenApiError(f"the reference {shown!r} leads to no file")
        return path


def _parts_of_schemas(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each reference in an `allOf` of a named schema, after the name."""
    for name, schema in object_at(document, "components", "schemas").items():
        for part in list_at(schema, "allOf"):
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                yield name, part["$ref"]


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
