"""What a server says of a tool, and whether it may say so.

Annotations and icons have classes of their own, which a server that uses none never imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import evolve, field, frozen

from ..jsonschema.validation import ValidationIssue
from .tool_names import name_problem

if TYPE_CHECKING:
    from ..protocol.content import Icon
    from ..protocol.revisions import Revision
    from ..protocol.tool_annotations import ToolAnnotations


@frozen
class ToolDefinition:
    """What a server says of a tool.

    Args:
        name: unique within a server.
        description: for the model that chooses tools.
        input_schema: JSON Schema of the arguments; its root is ``type: object``.
        version: the tool's own version, if it has one.
        title: for people.
        output_schema: JSON Schema of the result; what a handler returns is held against it.
        annotations: what the tool does to the world.
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
        """The tool as `tools/list` shows it to a peer that speaks `revision` (REG-02)."""
        wire: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self._output_schema_for(revision),
            "annotations": None if self.annotations is None else self.annotations.to_wire(),
            "icons": [icon.to_wire() for icon in self.icons] or None,
            "version": self.version,
            "_meta": self.meta,
        }
        present = {name: value for name, value in wire.items() if value is not None}
        return revision.keep("tool", present)

    def _output_schema_for(self, revision: Revision) -> Mapping[str, Any] | None:
        """Results that are no objects came late (CONT-07)."""
        schema = self.output_schema
        if schema is None or revision.any_structured_content:
            return schema
        return schema if schema.get("type") == "object" else None

    def issues(self) -> tuple[ValidationIssue, ...]:
        """What is wrong with it, apart from what compiling its schemas will tell (REG-03)."""
        found = [
            *_because("/name", name_problem(self.name)),
            *_text("/description", self.description),
            *_text("/version", self.version, optional=True),
            *_text("/title", self.title, optional=True),
            *_object("/inputSchema", self.input_schema),
            *_object("/outputSchema", self.output_schema, optional=True),
            *_object("/_meta", self.meta, optional=True),
        ]
        if self.annotations is not None or self.icons:
            found += self._instance_issues()
        return tuple(found)

    def _instance_issues(self) -> list[ValidationIssue]:
        from ..protocol.content import Icon
        from ..protocol.tool_annotations import ToolAnnotations

        found = []
        annotations: object = self.annotations
        icons: object = self.icons
        if not isinstance(annotations, ToolAnnotations | None):
            found.append(ValidationIssue("/annotations", "must be ToolAnnotations"))
        if not isinstance(icons, Sequence) or not all(isinstance(one, Icon) for one in icons):
            found.append(ValidationIssue("/icons", "must be a sequence of Icon"))
        return found

    def private_copy(self) -> ToolDefinition:
        """The same, out of reach of whoever made it: what is enforced is what is shown (REG-05)."""
        return evolve(
            self,
            input_schema=_copy(self.input_schema),
            output_schema=None if self.output_schema is None else _copy(self.output_schema),
            icons=tuple(self.icons),
            meta=None if self.meta is None else _copy(self.meta),
        )


def _copy(value: Mapping[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = orjson.loads(orjson.dumps(dict(value)))
    return copy


def _because(path: str, problem: str | None) -> list[ValidationIssue]:
    return [] if problem is None else [ValidationIssue(path, problem)]


# Values an author gave: their annotated types are what is being checked.


def _text(path: str, value: object, *, optional: bool = False) -> list[ValidationIssue]:
    """A string that can be sent: one with lone surrogates cannot."""
    if optional and value is None:
        return []
    try:
        if isinstance(value, str) and value.encode() is not None:
            return []
    except UnicodeEncodeError:
        pass
    return [ValidationIssue(path, "must be a string of valid Unicode")]


def _object(path: str, value: object, *, optional: bool = False) -> list[ValidationIssue]:
    if optional and value is None:
        return []
    if not isinstance(value, Mapping):
        return [ValidationIssue(path, "must be an object")]
    try:
        # As `tools/list` nests it: orjson writes 254 levels.
        orjson.dumps([[[dict(value)]]])
    except TypeError as error:
        return [ValidationIssue(path, f"must be JSON: {error}")]
    return []
