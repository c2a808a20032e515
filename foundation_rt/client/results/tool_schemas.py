"""One tool of a server, as `tools/list` has it.

Its schemas are compiled on first use (0.8 ms each): a server may list thousands of tools, and a
program calls a few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.exact_json import dumps
from ...base.tool_versions import VERSIONS_KEY, at_version
from ...errors import RegistrationError
from ..errors import InvalidArgumentsError, InvalidResponseError
from .results import text_of
from .schema_check import SchemaCheck

if TYPE_CHECKING:
    from ...base.app_format import ToolUi
    from ...base.jsonschema.header_params import HeaderParameter
    from ...base.jsonschema.issues import ValidationIssue


@define(eq=False, repr=False)
class ToolSchema:
    """A tool of a server; made by `read`.

    Attributes:
        wire: as it came, every member kept.
        annotations: the effects of the tool, as the server describes them; may be empty. They are
            as trustworthy as the server (MCP 2026-07-28, "Tool").
    """

    name: str
    wire: Mapping[str, Any]
    annotations: Mapping[str, Any]
    _input: SchemaCheck
    _output: SchemaCheck | None
    _header_params: tuple[tuple[HeaderParameter, ...], str | None] | None = field(
        default=None, init=False
    )
    _versions: dict[str, ToolSchema | None] = field(factory=dict, init=False)

    @classmethod
    def read(cls, wire: Any) -> ToolSchema:
        """Read a member of `tools`.

        Raises:
            InvalidResponseError: it is no tool (CTOOL-01).
        """
        if type(wire) is not dict:
            raise InvalidResponseError("a tool is listed that is not an object")
        name, schema, output = map(wire.get, ("name", "inputSchema", "outputSchema"))
        if type(name) is not str or not name:
            raise InvalidResponseError("a tool is listed without a name")
        if type(schema) is not dict:
            raise InvalidResponseError("a tool is listed whose inputSchema is not an object")
        if output is not None and type(output) is not dict:
            raise InvalidResponseError("a tool is listed whose outputSchema is not an object")
        said = wire.get("annotations")
        return cls(
            name,
            wire,
            said if type(said) is dict else {},
            SchemaCheck(schema),
            None if output is None else SchemaCheck(output),
        )

    def __repr__(self) -> str:
        about = "".join(f", {text!r}" for text in (self.title, self.description) if text)
        return f"ToolSchema({self.name!r}{about})"

    def at_version(self, version: str) -> ToolSchema | None:
        """Return a version of the tool, which is called ``NAME@VERSION`` (CTOOL-30).

        Returns:
            None if the server does not list this version, or not as a tool.
        """
        if version not in self._versions:
            meta = self.wire.get("_meta")
            others = meta.get(VERSIONS_KEY) if type(meta) is dict else None
            listed = others.get(version) if type(others) is dict else None
            wire = self.wire if self.wire.get("version") == version else listed
            if type(wire) is not dict:
                return None
            wire = {**wire, "name": at_version(self.name, version), "version": version}
            try:
                self._versions[version] = ToolSchema.read(wire)
            except InvalidResponseError:
                self._versions[version] = None
        return self._versions[version]

    @property
    def title(self) -> str | None:
        """Its name for people; None if there is none (before 2025-06-18 an annotation)."""
        return text_of(self.wire, "title") or text_of(self.annotations, "title")

    @property
    def description(self) -> str | None:
        """Its description; None if there is none."""
        return text_of(self.wire, "description")

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The schema of its arguments."""
        return self._input.schema

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The schema of its structured result; None if there is none."""
        return None if self._output is None else self._output.schema

    @property
    def is_read_only(self) -> bool:
        """Return whether the server says that a call changes nothing."""
        return self.annotations.get("readOnlyHint") is True

    @property
    def is_idempotent(self) -> bool:
        """Return whether the server says that a second call changes nothing more (CTOOL-03)."""
        return self.annotations.get("idempotentHint") is True or self.is_read_only

    @property
    def needs_task(self) -> bool:
        """Return whether it may be called as a task only, as MCP 2025-11-25 has them (CTOOL-18)."""
        said = self.wire.get("execution")
        return type(said) is dict and said.get("taskSupport") == "required"

    @property
    def ui(self) -> ToolUi:
        """The app that shows its results, and who may call it, as the server says (CAPP-01)."""
        from ...base.app_format import ToolUi

        return ToolUi.read(self.wire.get("_meta"))

    @property
    def uncheckable(self) -> str | None:
        """The reason why a schema of it is not checked; known after the first check (CTOOL-04)."""
        parts = (("inputSchema", self._input), ("outputSchema", self._output))
        found = [
            f"{member}: {check.problem}"
            for member, check in parts
            if check is not None and check.problem is not None
        ]
        return "; ".join(found) or None

    @property
    def unchecked_output(self) -> str | None:
        """Return why structured results are unchecked, known after the first check (CTOOL-04)."""
        return None if self._output is None else self._output.problem

    def check_arguments(self, arguments: Mapping[str, Any]) -> tuple[ValidationIssue, ...]:
        """Return the problems of a call's arguments; `()` if there are none (CTOOL-02)."""
        return self._input.issues(arguments)

    def check_output(self, structured: Any) -> tuple[ValidationIssue, ...]:
        """Return the problems of a structured result; `()` if there are none (CTOOL-02)."""
        return () if self._output is None else self._output.issues(structured)

    @property
    def header_parameters(self) -> tuple[HeaderParameter, ...]:
        """The arguments that HTTP headers repeat; none if one of them breaks the rules."""
        return self._find_header_params()[0]

    @property
    def header_problem(self) -> str | None:
        """The reason why it must not be used over HTTP in the stateless mode (CTOOL-09)."""
        return self._find_header_params()[1]

    def header_params(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of a call: names after `Mcp-Param-` to texts, not yet encoded.

        Raises:
            InvalidArgumentsError: a value is none that a header can say (CTOOL-10).
        """
        from .mcp_headers import header_texts

        texts, issues = header_texts(self.header_parameters, arguments)
        if issues:
            raise InvalidArgumentsError(self.name, issues)
        return texts

    def says_the_same(self, other: ToolSchema) -> bool:
        """Return whether both were listed in the same words (CTOOL-08).

        As JSON: to Python `1`, `1.0` and `true` are equal, to a schema they are not.
        """
        return dumps(self.wire) == dumps(other.wire)

    def _find_header_params(self) -> tuple[tuple[HeaderParameter, ...], str | None]:
        if self._header_params is None:
            from .mcp_headers import find_parameters

            try:
                self._header_params = find_parameters(self.input_schema), None
            except RegistrationError as error:
                self._header_params = (), str(error)
        return self._header_params
