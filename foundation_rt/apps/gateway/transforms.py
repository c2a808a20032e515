"""Tools as the entry of their server shapes them (GATE-64, spec/transforms.md).

A tool that cannot be shaped as its entry says is not offered: unshaped, it would take arguments
that the operator has hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from attrs import define, field

from ...base.tool_versions import DEPRECATED_KEY, SEPARATOR, described
from ...base.transforms import ShapedArguments, Transform
from ...errors import RegistrationError
from .tool_versions import listed_versions

log = logging.getLogger("foundation_rt.gateway")

Definition = Mapping[str, Any]


@define(eq=False)
class ShapedTools:
    """Shapes the tools of all servers.

    Args:
        transform_of: returns the transform of a server, by its id; None if it has none.
    """

    transform_of: Callable[[str], Transform | None]
    _known: dict[tuple[str, str, str], tuple[Any, tuple[Definition, ShapedArguments]]] = field(
        factory=dict, init=False
    )
    _logged: set[str] = field(factory=set, init=False)

    def shape(
        self, server: str, definition: Definition
    ) -> tuple[Definition, ShapedArguments | None] | None:
        """Return a tool as clients see it, and what its calls do; None: it is not offered."""
        transform = self.transform_of(server)
        name, version = str(definition.get("name")), str(definition.get("version"))
        shapes = {} if transform is None else transform.tools
        shape = shapes.get(f"{name}{SEPARATOR}{version}") or shapes.get(name)
        if shape is None:
            return definition, None
        state = (shape, definition)
        known = self._known.get((server, name, version))
        if known is not None and known[0] == state:
            return known[1]
        schema = definition.get("inputSchema")
        try:
            if not isinstance(schema, dict):
                raise shape.refusal("it has no schema")
            shown = shape.schema(schema, linear=True)
            arguments = shape.arguments_of(schema, shown=shown, linear=True)
        except RegistrationError as error:
            self._log(f"the tool {name!r} of server {server!r} is not offered: {error}")
            return None
        outside = name if shape.outside == shape.name else shape.outside
        shaped = {**definition, **shape.texts, "name": outside, "inputSchema": shown}
        meta = definition.get("_meta")
        advice = meta.get(DEPRECATED_KEY) if isinstance(meta, Mapping) else None
        if "description" in shape.texts and isinstance(advice, str):
            shaped["description"] = described(shaped["description"], advice)
        self._known[server, name, version] = (state, (shaped, arguments))
        return shaped, arguments

    def look_for_unknown(self, server: str, listed: Iterable[Definition]) -> None:
        """Log a tool that a server's entry shapes and that it does not list."""
        transform = self.transform_of(server)
        if transform is not None:
            newest = [*listed]
            every = [*newest, *chain.from_iterable(map(listed_versions, newest))]
            versions = (f"{each.get('name')}{SEPARATOR}{each.get('version')}" for each in every)
            try:
                transform.check_fits((str(each.get("name")) for each in newest), versions)
            except RegistrationError as error:
                self._log(f"server {server!r}: {error}")

    def _log(self, problem: str) -> None:
        if problem not in self._logged:
            self._logged.add(problem)
            log.warning("%s", problem)
