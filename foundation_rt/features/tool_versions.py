"""Versions of a tool: several tools of one name, side by side (spec/versions.md).

Each version is an entry of the registry of its own, under its name, `@` and its version. So it is
switched, restricted, mounted and compiled as any other tool, and a call may name it. What is
particular is here: which one a name alone means, and that lists show the newest.

A registry becomes one of versions with its first tool that has one. Without any it never comes
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import evolve

from ..base.app_format import ToolUi
from ..base.cursors import names_after, page_of
from ..base.exact_json import compact, dumps
from ..base.jsonschema.compilation import ValidationIssue, ValidationResult
from ..base.tool_versions import (
    DEPRECATED_KEY,
    SEPARATOR,
    VERSIONS_KEY,
    asked_version,
    described,
    rank,
)
from ..errors import ErrorCode, RegistrationError, ToolError, to_tool_error
from ..kernel.call_lifecycle import no_such_tool
from ..kernel.registry.catalog import Registry, is_shown, is_visible
from ..kernel.registry.tool_definition import advertised_name
from ..kernel.registry.tools import RegisteredTool, ToolPart, ToolRegistry
from ..kernel.replies import MAX_ECHOED_NAME, result_reply
from ..kernel.results import TOOL, tool_result

if TYPE_CHECKING:
    from ..errors import StructuredError
    from ..kernel.call_lifecycle import CallLifecycle
    from ..kernel.effects import Reply
    from ..kernel.invocation import Invocation
    from ..kernel.registry.catalog import IsOn, Page
    from ..kernel.registry.tool_definition import ToolDefinition
    from ..protocol.principal import Principal
    from ..protocol.revisions import Revision

_LEFT_OUT = ("name", "version", "icons")
"""Members of a definition that the entry of a newer version has, or that lists alone need."""


class Deprecated(ToolPart):
    """A version that is to be used no more.

    Attributes:
        advice: says what to do instead.
    """

    __slots__ = ("advice",)

    def __init__(self, advice: str) -> None:
        self.advice = advice


def read_deprecated(definition: ToolDefinition, advice: object) -> Deprecated:
    """Return the part of a tool for its option `deprecated` (VERS-08).

    Raises:
        RegistrationError: it is no text, or the tool has no version.
    """
    name = definition.name
    if definition.version is None:
        raise RegistrationError(f"tool {name!r}: deprecated needs version= as well")
    if not isinstance(advice, str) or not advice.strip() or not advice.isprintable():
        raise RegistrationError(
            f"tool {name!r}: deprecated says what to do instead, on one line:"
            ' deprecated="use version 2"'
        )
    return Deprecated(advice)


def keep_versions(registry: ToolRegistry, first: RegisteredTool) -> None:
    """Let a registry keep several versions of a tool from now on, and add the first one."""
    with registry.notifier.lock:
        if not isinstance(registry, VersionedTools):
            registry.__class__ = VersionedTools
            registry.on_version = None
            assert isinstance(registry, VersionedTools)
            registry.begin()
        registry._add(first)


def meant_tool(
    tools: ToolRegistry, params: Mapping[str, Any], principal: Principal | None
) -> RegisteredTool | None:
    """Return the tool that the params of a call mean, if the principal sees it.

    Args:
        tools: of the server.
        params: of a call; their `name` is a string.
        principal: of the call.
    """
    if isinstance(tools, VersionedTools):
        return tools.meant(params, principal)
    return tools.seen(params["name"], principal)


def is_shown_to_models(tool: RegisteredTool, principal: Principal | None) -> bool:
    """Return whether a principal sees and may use a tool that is not for apps alone."""
    return is_shown(tool, principal) and ToolUi.read(tool.definition.meta).for_model


def shown_tools(
    tools: ToolRegistry, principal: Principal | None
) -> dict[str, list[RegisteredTool]]:
    """Return what models of a principal are shown, by name; of each tool the newest first."""
    shown: dict[str, list[RegisteredTool]] = {}
    for each in tools.entries():
        if is_shown_to_models(each, principal):
            shown.setdefault(each.definition.name, []).append(each)
    return shown


def written(versions: Sequence[RegisteredTool], revision: Revision) -> dict[str, Any]:
    """Return the newest of some versions as lists show it, with the others (VERS-04)."""
    newest, *older = versions
    wire = newest.wire(revision)
    if older and revision.has("tool", "_meta"):
        others = {
            str(each.definition.version): {
                member: value
                for member, value in each.wire(revision).items()
                if member not in _LEFT_OUT
            }
            for each in older
        }
        wire["_meta"] = {**(wire.get("_meta") or {}), VERSIONS_KEY: others}
    return wire


class VersionedTools(ToolRegistry):
    """A registry that keeps several versions of a tool.

    A registry of tools becomes one (`keep_versions`): whoever has it goes on to have it.
    """

    _groups: dict[str, tuple[RegisteredTool, ...]]
    """By the name that clients use, the versions that are switched on, the newest first."""

    def begin(self) -> None:
        """Take over what is registered already."""
        own: Registry[RegisteredTool] = Registry(self.notifier)
        own.is_on = self.is_on
        for tool in self.all_registered():
            self._prepare(tool)
            own.put(tool.names[1], tool)
        self.take_over(own)

    # -- what is registered --------------------------------------------------------------------

    def _add(self, tool: RegisteredTool) -> None:
        with self.notifier.lock:
            problem = self._problem(tool.definition, tool.registered_name)
            if problem is not None:
                raise RegistrationError(f"tool {tool.registered_name!r} is refused: {problem}")
            self._prepare(tool)
            super()._add(tool)

    def _prepare(self, tool: RegisteredTool) -> None:
        if tool.definition.version is not None:
            tool.suffix = f"{SEPARATOR}{tool.definition.version}"
            tool.choose, tool.is_restricted = self._choose, True
            _say_deprecated(tool)

    def validate_definition(self, definition: ToolDefinition) -> ValidationResult:
        """Return the problems that `register` would find, without registering the tool."""
        found = super().validate_definition(definition)
        if not found.valid or (problem := self._problem(definition, definition.name)) is None:
            return found
        return ValidationResult(False, (ValidationIssue("/version", problem),))

    def _problem(self, definition: ToolDefinition, registered_name: str) -> str | None:
        """Return why a tool does not fit beside those of its name (VERS-03); None if it does."""
        version = definition.version
        name = advertised_name(registered_name, self._separator)
        for other in self._of_name(name):
            present = other.definition.version
            if present is version is None:
                continue  # a name that is taken, as in any registry
            if other.registered_name != registered_name:
                both = f"{other.registered_name!r} and {registered_name!r}"
                return f"{both} would both be called {name!r}"
            if present is None or version is None:
                return "there is one of this name, and one of both has no version: give each one"
            if rank(present) == rank(version):
                return (
                    f"version {present!r} is already registered: give it another version, or"
                    f" unregister {other.names[0]!r} first"
                )
        return None

    def _of_name(self, name: str) -> Iterator[RegisteredTool]:
        """Yield the tools that clients call by a name, switched off or on."""
        plain = self.registered(name)
        if plain is not None:
            yield plain
        yield from self._groups.get(name, ())
        begin = f"{name}{SEPARATOR}"
        yield from (each for key, each in self._off.items() if key.startswith(begin))

    def unregister(self, name: str) -> bool:
        """Remove all versions of a tool, or the one of ``name@version``."""
        tools = [
            each for each in self.all_registered() if name in (each.names[0], each.registered_name)
        ]
        return bool([each for each in tools if self.remove(each)])

    def find(self, name: str) -> RegisteredTool | None:
        """Return the tool registered as `name`, or its newest version."""
        found = super().find(name)
        if found is not None:
            return found
        versions = [each for each in self.all_registered() if each.registered_name == name]
        return max(versions, key=_rank, default=None)

    def use_separator(self, separator: str) -> None:
        """See `ToolRegistry.use_separator`."""
        with self.notifier.lock:
            called: dict[str, str] = {}
            for tool in self.all_registered():
                outside = advertised_name(tool.registered_name, separator)
                first = called.setdefault(outside, tool.registered_name)
                if first != tool.registered_name:
                    raise RegistrationError(
                        f"tools {first!r} and {tool.registered_name!r} would both be called"
                        f" {outside!r}: rename one, or choose another `tools.name_separator`"
                    )
            super().use_separator(separator)

    # -- the groups ----------------------------------------------------------------------------

    def put(self, key: str, entry: RegisteredTool) -> bool:
        """Add an entry unless the key is taken; return whether it was added."""
        with self.notifier.lock:
            was_added = super().put(key, entry)
            if was_added and entry.suffix and key in self._entries:
                name = key.removesuffix(entry.suffix)
                self._group(name, (*self._groups.get(name, ()), entry))
        return was_added

    def drop(self, key: str) -> bool:
        """Remove an entry; return whether there was one."""
        with self.notifier.lock:
            entry = self.registered(key)
            if entry is not None and entry.suffix:
                name = key.removesuffix(entry.suffix)
                left = (each for each in self._groups.get(name, ()) if each is not entry)
                self._group(name, tuple(left))
            return super().drop(key)

    def apply(self, is_on: IsOn) -> list[RegisteredTool]:
        """Switch entries, without notifying anyone; return those that changed."""
        with self.notifier.lock:
            changed = super().apply(is_on)
            self._regroup()
        return changed

    def take_over(self, other: Registry[RegisteredTool]) -> None:
        """Have the entries of `other` instead of the own ones."""
        with self.notifier.lock:
            super().take_over(other)
            self._regroup()
            self.get = self._get

    def _group(self, name: str, versions: tuple[RegisteredTool, ...]) -> None:
        self._encoded.pop(name, None)
        if versions:
            self._groups[name] = _newest_first(versions)
        else:
            self._groups.pop(name, None)

    def _regroup(self) -> None:
        found: dict[str, list[RegisteredTool]] = {}
        for key, entry in self._entries.items():
            if entry.suffix:
                found.setdefault(key.removesuffix(entry.suffix), []).append(entry)
        self._encoded = {}
        # At once: calls look here without a lock.
        self._groups = {name: _newest_first(versions) for name, versions in found.items()}

    def _get(self, name: str) -> RegisteredTool | None:
        """Return the tool of a name, or its newest version; without a lock."""
        found = self._entries.get(name)
        if found is None:
            versions = self._groups.get(name)
            return None if versions is None else versions[0]
        return found

    # -- what is called ------------------------------------------------------------------------

    def _choose(self, call: Invocation) -> RegisteredTool:
        """Return the version that a call means; from now on it has the name of the tool."""
        tool = self._version_for(call.name, call.meta, call.principal)
        call.name = tool.definition.name
        call.kind = _DEPRECATED if Deprecated in tool.parts else _VERSIONED
        return tool

    def _version_for(
        self, name: str, meta: Mapping[str, Any] | None, principal: Principal | None
    ) -> RegisteredTool:
        """Return the version that a name and the `_meta` of a call mean (VERS-05, VERS-06).

        Raises:
            ToolError: NOT_FOUND: it means one that the principal does not see. INVALID_ARGUMENT:
                it means two.
        """
        plain, _, version = name.partition(SEPARATOR)
        asked = asked_version(meta)
        versions = self._groups.get(plain, ())
        seen = [each for each in versions if is_visible(each, principal)]
        if not seen:
            raise no_such_tool(name)
        if version and asked is not None and asked != version:
            problem = f"The call asks for two versions of {plain!r}: {version!r} and {asked!r:.80}."
            raise ToolError(ErrorCode.INVALID_ARGUMENT, problem)
        wanted = version or asked
        if wanted is not None:
            for each in seen:
                if each.definition.version == wanted:
                    return each
            if version:  # as of a name that was never there
                raise no_such_tool(name)
            known = [each.definition.version for each in seen if _may_use(principal, each)]
            raise ToolError(
                ErrorCode.NOT_FOUND,
                f"There is no version {wanted[:MAX_ECHOED_NAME]!r} of the tool {plain!r}.",
                {"toolName": plain, "versions": known},
            )
        # Of none that it may use, it is told which scopes the newest needs.
        return next((each for each in seen if _may_use(principal, each)), seen[0])

    def seen(self, key: str, principal: Principal | None) -> RegisteredTool | None:
        """Return the tool of a name; None if there is none that the principal sees."""
        return self.meant({"name": key}, principal)

    def meant(
        self, params: Mapping[str, Any], principal: Principal | None
    ) -> RegisteredTool | None:
        """Return the tool that the params of a call mean, if the principal sees it."""
        name, meta = params["name"], params.get("_meta")
        tool = self.get(name)
        if tool is None or tool.choose is None:
            return super().seen(name, principal)
        try:
            return self._version_for(name, meta if type(meta) is dict else None, principal)
        except ToolError:
            return None

    # -- what is listed ------------------------------------------------------------------------

    def entries(self) -> tuple[RegisteredTool, ...]:
        """Return all tools that are switched on, by name; of versions the newest first."""
        with self.notifier.lock:
            return tuple(
                each
                for name in self._sorted()
                for each in self._groups.get(name) or (self._entries[name],)
            )

    def page(
        self,
        cursor: str | None,
        size: int,
        revision: Revision,
        principal: Principal | None = None,
    ) -> Page:
        """Return one page of the list; see `Registry.page`."""
        with self.notifier.lock:
            shown = self._shown_to(principal)
            names, following = page_of([*shown], cursor, size)
            return [self._write(name, shown[name], revision) for name in names], following

    def following(
        self, after: str | None, count: int, revision: Revision, principal: Principal | None
    ) -> dict[str, orjson.Fragment]:
        """Return at most `count` tools by name; see `Registry.following`."""
        with self.notifier.lock:
            shown = self._shown_to(principal)
            names = names_after([*shown], after, count)
            return {name: self._write(name, shown[name], revision) for name in names}

    def _sorted(self) -> tuple[str, ...]:
        if self._keys is None:
            plain = (key for key, each in self._entries.items() if not each.suffix)
            self._keys = tuple(sorted((*plain, *self._groups)))
        return self._keys

    def _shown_to(self, principal: Principal | None) -> dict[str, Sequence[RegisteredTool]]:
        """Return the versions of each tool that a principal sees and may use."""
        shown: dict[str, Sequence[RegisteredTool]] = {}
        for name in self._sorted():
            each = self._groups.get(name) or (self._entries[name],)
            if self.differs:
                each = tuple(one for one in each if is_shown(one, principal))
            if each:
                shown[name] = each
        return shown

    def _write(
        self, name: str, versions: Sequence[RegisteredTool], revision: Revision
    ) -> orjson.Fragment:
        """Return the newest version as JSON, which has the others in its `_meta` (VERS-04)."""
        if not versions[1:]:
            return self._encode(versions[0].names[1], revision)
        view = f"{revision.name} {' '.join(each.suffix for each in versions)}"
        encoded = self._encoded.setdefault(name, {})
        if view not in encoded:
            encoded[view] = orjson.Fragment(compact(dumps(written(versions, revision))))
        return encoded[view]


def _rank(tool: RegisteredTool) -> Any:
    return rank(str(tool.definition.version))


def _newest_first(versions: Iterable[RegisteredTool]) -> tuple[RegisteredTool, ...]:
    return tuple(sorted(versions, key=_rank, reverse=True))


def _may_use(principal: Principal | None, tool: RegisteredTool) -> bool:
    return principal is None or not principal.lacks(tool.scopes)


def _say_deprecated(tool: RegisteredTool) -> None:
    """Say in the definition of a deprecated version that it is one, once (VERS-08)."""
    part: Deprecated | None = tool.parts.get(Deprecated)
    if part is not None:
        tool.definition = evolve(
            tool.definition,
            description=described(tool.definition.description, part.advice),
            meta={**(tool.definition.meta or {}), DEPRECATED_KEY: part.advice},
        )


# -- records and results of versions --------------------------------------------------------------


def _log_fields(call: Invocation) -> Mapping[str, Any]:
    return {"toolVersion": call.tool.definition.version}


def _deprecated_reply(calls: CallLifecycle, call: Invocation, value: Any) -> tuple[Reply, bool]:
    """Return the reply, whose `_meta` says what to do instead."""
    max_bytes = calls.limits.max_response_bytes
    result = tool_result(value, call.tool, call.peer.revision, max_bytes)
    return _with_advice(calls, call, result), result["isError"]


def _deprecated_error(calls: CallLifecycle, call: Invocation, error: StructuredError) -> Reply:
    result = to_tool_error(error, run_id=call.run_id, correlation_id=call.correlation_id)
    return _with_advice(calls, call, result)


def _with_advice(calls: CallLifecycle, call: Invocation, result: dict[str, Any]) -> Reply:
    advice = {DEPRECATED_KEY: call.tool.parts[Deprecated].advice}
    result["_meta"] = {**result.get("_meta", {}), **advice}
    return result_reply(call.request_id, calls.results.complete(call.peer, result))


_VERSIONED = evolve(TOOL, log_fields=_log_fields)
_DEPRECATED = evolve(_VERSIONED, to_reply=_deprecated_reply, to_error=_deprecated_error)
