"""Checks of the definitions of resources, prompts and completions, and how their handlers run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.exact_json import dumps, loads
from ..base.shown import Shown
from ..errors import RegistrationError
from ..kernel.registry.tools import (
    MAX_TIMEOUT_MS,
    ExecutionMode,
    check_scopes,
    is_async_callable,
)
from .callables import takes
from .handler_calls import HandlerSpec
from .tool_settings import read_audience

if TYPE_CHECKING:
    from ..kernel.registry.catalog import Predicate
    from ..kernel.registry.tools import Handler

MAX_NAME_LENGTH = 256


class FeatureEntry(Shown):
    """An entry of the list of resources, templates or prompts, with its handler."""

    __slots__ = ()
    handler_spec: HandlerSpec
    reserved = False

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that a principal needs to use the entry, all of them."""
        return self.handler_spec.scopes

    @property
    def tags(self) -> frozenset[str]:
        """The tags by which the entry can be switched off and on."""
        return self.handler_spec.tags

    @property
    def visible(self) -> Predicate | None:
        """Returns whether a principal sees the entry (VIS-02); None: all do."""
        return self.handler_spec.visible


class DefinitionChecks:
    """Checks the parts of one definition; each refusal names what to change.

    Args:
        subject: the definition, as a refusal names it: ``resource 'task://all'``.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject

    def refusal(self, problem: str) -> RegistrationError:
        """Return the error that refuses the definition."""
        return RegistrationError(f"{self.subject} is refused: {problem}")

    def name(self, where: str, value: object) -> None:
        """Refuse all but a printable string of bounded length, without white space at its ends."""
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
            raise self.refusal(f"{where} must be a string of 1 to {MAX_NAME_LENGTH} characters")
        if not value.isprintable() or value != value.strip():
            raise self.refusal(f"{where} must be printable, without white space at its ends")

    def text(self, where: str, value: object) -> None:
        """Refuse all but None and a string that UTF-8 can carry: lone surrogates it cannot."""
        if value is None:
            return
        try:
            if isinstance(value, str) and value.encode() is not None:
                return
        except UnicodeEncodeError:
            pass
        raise self.refusal(f"{where} must be a string of valid Unicode")

    def number(self, where: str, value: object, least: int, most: int) -> None:
        """Refuse all but None and a whole number from `least` to `most`."""
        if value is not None and not (type(value) is int and least <= value <= most):
            raise self.refusal(
                f"{where} must be a whole number from {least} to {most}, not {value!r}"
            )

    def instance(self, where: str, value: object, kind: type) -> None:
        """Refuse all but an instance of `kind`."""
        if not isinstance(value, kind):
            raise self.refusal(f"{where} must be {kind.__name__}, not {type(value).__name__}")

    def icons(self, value: object) -> None:
        """Refuse all but a sequence of icons."""
        if value == ():
            return
        from ..protocol.content import Icon  # few definitions have icons

        if not isinstance(value, Sequence) or not all(isinstance(each, Icon) for each in value):
            raise self.refusal("icons must be a sequence of Icon")

    def meta(self, value: object) -> dict[str, Any] | None:
        """Return a private copy of a JSON object, or None; refuse all else."""
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refusal("meta must be a mapping")
        try:
            # As deep as lists nest it, and three levels more: orjson writes 254.
            dumps([[[[[dict(value)]]]]])
            copy: dict[str, Any] = loads(dumps(dict(value)))
        except TypeError as error:
            raise self.refusal(f"meta must be JSON: {error}") from None
        return copy

    def handler_spec(
        self,
        handler: Handler,
        execution: ExecutionMode | None,
        *,
        inline: bool = False,
        timeout_ms: int | None = None,
        scopes: Iterable[str] = (),
        tags: Iterable[str] = (),
        visible: Predicate | Iterable[str] | None = None,
    ) -> HandlerSpec:
        """Return how `handler` runs, given its `HandlerOptions`.

        Without `execution`, a coroutine function runs as a task and any other callable in a worker
        thread.

        Raises:
            RegistrationError: the handler cannot run so.
        """
        if not callable(handler):
            raise self.refusal("the handler is not callable")
        self.number("timeout_ms", timeout_ms, 1, MAX_TIMEOUT_MS)
        if execution is None:
            if not takes(handler, 2):
                raise self.refusal("the handler takes two arguments, the second a ToolContext")
            execution = ExecutionMode.ASYNC if is_async_callable(handler) else ExecutionMode.THREAD
        if inline:
            if execution is ExecutionMode.ASYNC:
                raise self.refusal("inline=True is for def, not for async def")
            execution = ExecutionMode.INLINE
        granted = check_scopes(self.subject, scopes)
        audience = read_audience(self.subject, tags, visible)
        return HandlerSpec(handler, execution, timeout_ms, granted, *audience)
