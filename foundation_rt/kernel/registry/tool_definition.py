"""The definition of a tool, its checks, and the rules of tool names.

MCP 2025-11-25 and SEP-986 recommend ASCII letters, digits and `_ - . /`. The runtime takes no
others: two names that look alike are two tools for a program, and one for a person or a model
(REG-10). Some clients refuse `/`, though SEP-986 allows it. For them another separator can stand
in its place (REG-11).

Annotations, icons and versions have modules of their own, which a server that uses none never
imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field, frozen

from ...base.exact_json import dumps, loads
from ...base.jsonschema.compilation import ValidationIssue
from ...base.shown import Compared

if TYPE_CHECKING:
    from ...protocol.content import Icon
    from ...protocol.revisions import Revision
    from ...protocol.tool_annotations import ToolAnnotations


MAX_TOOL_NAME_LENGTH: Final = 256
RECOMMENDED_LENGTH: Final = 128

SEPARATOR: Final = "/"
"""The separator of the parts of a name, as a tool is registered."""

_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-")
"""Those of names; a regular expression would be compiled by every start."""


@frozen(eq=False, repr=False)
class ToolDefinition(Compared):
    """A tool as a server describes it.

    Args:
        name: unique within a server.
        description: for the model that chooses a tool.
        input_schema: JSON Schema of the arguments; its root is ``type: object``.
        version: the tool's own version, if it has one (VERS-01).
        title: for people.
        output_schema: JSON Schema of the result; the value of the handler is checked against it.
        annotations: hints about the effects of the tool.
        icons: for people.
        meta: the `_meta` of the tool; JSON.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    version: str | None = None
    title: str | None = field(default=None, kw_only=True)
    output_schema: Mapping[str, Any] | None = field(default=None, kw_only=True)
    annotations: ToolAnnotations | None = field(default=None, kw_only=True)
    icons: Sequence[Icon] = field(default=(), kw_only=True)
    meta: Mapping[str, Any] | None = field(default=None, kw_only=True)

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the tool as `tools/list` shows it to a peer that speaks `revision` (REG-02)."""
        return revision.write(
            "tool",
            name=self.name,
            title=self.title,
            description=self.description,
            inputSchema=self.input_schema,
            outputSchema=self._output_schema_for(revision),
            annotations=None if self.annotations is None else self.annotations.to_wire(),
            icons=[icon.to_wire() for icon in self.icons] or None,
            version=self.version,
            _meta=self.meta,
        )

    def _output_schema_for(self, revision: Revision) -> Mapping[str, Any] | None:
        """Return the schema; for an old peer, whose results are objects, that of one (CONT-07)."""
        schema = self.output_schema
        if schema is None or revision.any_structured_content or schema.get("type") == "object":
            return schema
        from .wrapped_outputs import is_wrapped, wrapped

        return wrapped(schema) if is_wrapped(schema) else None

    def issues(self) -> tuple[ValidationIssue, ...]:
        """Return the problems of the definition but for those of its schemas (REG-03)."""
        found = [
            *_because("/name", name_problem(self.name)),
            *_text("/description", self.description),
            *([] if self.version is None else _version("/version", self.version)),
            *_text("/title", self.title, optional=True),
            *_object("/inputSchema", self.input_schema),
            *_object("/outputSchema", self.output_schema, optional=True),
            *_object("/_meta", self.meta, optional=True),
        ]
        if self.annotations is not None:
            found += _annotations("/annotations", self.annotations)
        if self.icons != ():
            found += _icons("/icons", self.icons)
        return tuple(found)

    def private_copy(self) -> ToolDefinition:
        """Return a copy that its author cannot change: it is shown as it is enforced (REG-05)."""
        return evolve(
            self,
            input_schema=_copy(self.input_schema),
            output_schema=None if self.output_schema is None else _copy(self.output_schema),
            icons=tuple(self.icons),
            meta=None if self.meta is None else _copy(self.meta),
        )


def _copy(value: Mapping[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = loads(dumps(dict(value)))
    return copy


def _because(path: str, problem: str | None) -> list[ValidationIssue]:
    return [] if problem is None else [ValidationIssue(path, problem)]


# An author gives these values: this checks the types that their annotations promise.


def _text(path: str, value: object, *, optional: bool = False) -> list[ValidationIssue]:
    """Check a string that UTF-8 can carry: lone surrogates it cannot."""
    if optional and value is None:
        return []
    try:
        if isinstance(value, str) and value.encode() is not None:
            return []
    except UnicodeEncodeError:
        pass
    return [ValidationIssue(path, "must be a string of valid Unicode")]


def _version(path: str, value: object) -> list[ValidationIssue]:
    from ...base.tool_versions import version_problem

    return _because(path, version_problem(value))


def _object(path: str, value: object, *, optional: bool = False) -> list[ValidationIssue]:
    if optional and value is None:
        return []
    if not isinstance(value, Mapping):
        return [ValidationIssue(path, "must be an object")]
    try:
        # As `tools/list` nests it: orjson writes 254 levels.
        dumps([[[dict(value)]]])
    except TypeError as error:
        return [ValidationIssue(path, f"must be JSON: {error}")]
    return []


def _annotations(path: str, value: object) -> list[ValidationIssue]:
    from ...protocol.tool_annotations import ToolAnnotations

    if isinstance(value, ToolAnnotations):
        return []
    return [ValidationIssue(path, "must be ToolAnnotations")]


def _icons(path: str, value: object) -> list[ValidationIssue]:
    from ...protocol.content import Icon

    if isinstance(value, Sequence) and all(isinstance(each, Icon) for each in value):
        return []
    return [ValidationIssue(path, "must be a sequence of Icon")]


# -- names ---------------------------------------------------------------------------------------


def advertised_name(name: str, separator: str) -> str:
    """Return the name that clients use for the tool registered as `name` (REG-11)."""
    return name if separator == SEPARATOR else name.replace(SEPARATOR, separator)


def name_problem(name: object) -> str | None:
    """Return why `name` is not a valid tool name; None if it is (REG-01, REG-10)."""
    if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME_LENGTH:
        return f"must be a string of 1 to {MAX_TOOL_NAME_LENGTH} characters"
    if not _CHARACTERS.issuperset(name):
        listed = ", ".join(map(ascii, sorted({*name} - _CHARACTERS)[:5]))
        return f"must have ASCII letters, digits and _ - . / only; this one has {listed}"
    return None


def name_warning(name: str) -> str | None:
    """Return why some clients may refuse a valid name; None if none will (REG-10)."""
    if len(name) > RECOMMENDED_LENGTH:
        return f"the name has {len(name)} characters; the specification has {RECOMMENDED_LENGTH}"
    return None
