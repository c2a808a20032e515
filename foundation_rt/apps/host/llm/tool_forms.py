"""Tools as the vendor of the model takes them, and what is changed (LLM-23, LLM-111 to LLM-117).

What a vendor is known to refuse is mended before it is sent. A tool that it refuses nevertheless is
sent in a stricter form with the next try, and left out at last: one tool never costs the others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from ...coordinator.names import changed_name
from ..chat import json_bytes
from .portability import MAX_DESCRIPTION, VENDORS, simple_schema, taken_schema
from .service import ModelTool

log = logging.getLogger("foundation_rt.host")

MAX_TRIES = 8
"""The most requests of one answer that are refused for their tools."""

_NAMED_ALONE = 4
"""Refusals of one answer that concern the tools they name alone; later ones concern all."""
_MAX_SCHEMA_BYTES = 64 * 1024
_MAX_KEPT = 20_000
_OWN, _STRICT, _SIMPLE, _LEFT_OUT = range(4)
_PLACES = (re.compile(r"function_declarations\[(\d+)"), re.compile(r"\btools[.\[](\d+)"))
"""The places of tools in a request, as Gemini and as others name them."""
_CUT = " [cut]"
_SIMPLE_NOTE = "its parameters are simplified"
_LEFT_OUT_NOTE = "left out: the model's provider refuses it"


@frozen
class ToolForm:
    """A tool as it is sent.

    Attributes:
        sent: with the name, the description and the parameters of the wire; None: left out.
        name: on the wire, also of one that is left out.
        parameter_names: those on the wire, by the tool's own.
        notes: what is changed, for people; () if nothing is.
    """

    sent: ModelTool | None
    name: str
    parameter_names: Mapping[str, str] = field(factory=dict)
    notes: tuple[str, ...] = ()

    def outward(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments under the names of the wire."""
        return _renamed(arguments, self.parameter_names)

    def inward(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments under the tool's own names."""
        own = {wire: name for name, wire in self.parameter_names.items()}
        return _renamed(arguments, own)


def _renamed(arguments: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    if not names:
        return arguments
    return {
        (names[key] if key in names and names[key] not in arguments else key): value
        for key, value in arguments.items()
    }


def wire_name(outside_name: str) -> str:
    """Return a name that every vendor takes: some want a letter first (LLM-20)."""
    if outside_name[:1].isalpha():
        return outside_name
    return changed_name(f"t_{outside_name}", outside_name)


@define(eq=False)
class ToolForms:
    """The forms of the tools for one vendor, kept while the process runs.

    Args:
        hosts: vendors of `portability` whose rules hold; () changes nothing.
    """

    _hosts: Collection[str]
    _levels: dict[str, int] = field(factory=dict, init=False)
    _least: int = field(default=_OWN, init=False)
    _made: dict[str, tuple[ModelTool, int, ToolForm]] = field(factory=dict, init=False)

    def of(self, tool: ModelTool) -> ToolForm:
        """Return the form of a tool."""
        level = max(self._least, self._levels.get(tool.name, _OWN))
        made = self._made.get(tool.name)
        if made is not None and made[0] != tool:  # a new definition, a new chance
            self._levels.pop(tool.name, None)
            made, level = None, self._least
        if made is not None and made[1] == level:
            return made[2]
        if len(self._made) >= _MAX_KEPT:
            self._made.clear()
        form = self._form(tool, level)
        self._made[tool.name] = tool, level, form
        if form.notes:
            text = "the model's provider does not take %s as it is: %s"
            fields = {"component": "LLM", "action": "tool_changed", "tool": tool.name}
            weight = logging.INFO if form.sent is not None else logging.WARNING
            log.log(weight, text, tool.name, "; ".join(form.notes), extra={"fields": fields})
        return form

    def _form(self, tool: ModelTool, level: int) -> ToolForm:
        if not self._hosts:
            return ToolForm(tool, tool.outside_name)
        name = wire_name(tool.outside_name)
        if level >= _LEFT_OUT:
            return ToolForm(None, name, notes=(_LEFT_OUT_NOTE,))
        notes = [] if name == tool.outside_name else [f"it is called {name}"]
        given = tool.parameters
        if level == _SIMPLE or json_bytes(given) > _MAX_SCHEMA_BYTES:
            given = simple_schema(given)
            notes.append(_SIMPLE_NOTE)
        hosts = self._hosts if level == _OWN else VENDORS
        schema, names, problems = taken_schema(given, hosts)
        notes += [f"the parameter {own} is called {wire}" for own, wire in names.items()]
        if problems:
            notes.append(f"its parameters are simplified ({', '.join(problems)})")
        description = tool.description
        if level > _OWN and len(description) > MAX_DESCRIPTION:
            description = description[: MAX_DESCRIPTION - len(_CUT)] + _CUT
            notes.append(f"its description is cut at {MAX_DESCRIPTION} characters")
        sent = evolve(tool, outside_name=name, description=description, parameters=schema)
        return ToolForm(sent, name, names, tuple(notes))

    def copy(self) -> ToolForms:
        """Return forms that change without these, for one answer (LLM-117)."""
        other = ToolForms(self._hosts)
        other._levels, other._least, other._made = {**self._levels}, self._least, {**self._made}
        return other

    def refused(self, words: str, sent: Sequence[ModelTool], attempt: int) -> bool:
        """Use stricter forms after a refusal; return whether there are any (LLM-113).

        Args:
            words: of the provider; they may name tools, or their places in the request.
            sent: the tools of the request.
            attempt: the number of the refusal, within this answer.
        """
        if attempt > MAX_TRIES:
            return False
        found = next(filter(None, (pattern.findall(words) for pattern in _PLACES)), ())
        places = {int(each) for each in found}
        named = [
            tool
            for place, tool in enumerate(sent)
            if place in places
            or re.search(rf"(?<![\w-]){re.escape(tool.outside_name)}(?![\w-])", words)
        ]
        if named:
            for tool in named:
                self._levels[tool.name] = max(self._least, self._levels.get(tool.name, _OWN)) + 1
        if named and attempt <= _NAMED_ALONE:
            return True
        if self._least < _SIMPLE:
            self._least += 1
        elif not named:
            return False  # it was not about the tools
        return True
