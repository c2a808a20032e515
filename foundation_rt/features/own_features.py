"""Features of authors, and how they join a server (EXT-12).

A server without such features does not import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RegistrationError, describe_exception
from ..kernel.feature import RuntimeFeature
from ..kernel.registry.tools import is_async_callable
from .callables import takes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.logs.logger import StructuredLogger
    from ..kernel.invocation import Invocation


class Feature:
    """A feature of an author, which a server has beside its tools; see `Server.add_feature`.

    A subclass overrides the hooks that it needs. All its other names are its own.
    """

    def allow(self, call: Invocation) -> None:
        """Refuse a call of a tool, resource, prompt, completion or method of an author (EXT-13).

        Called under the lock of its session, before the call takes a slot: it must not block. The
        arguments of a tool have not been validated yet; the params of a method of an author have.
        Anything that it returns but None is an error of the server, and refuses the call.

        Raises:
            ToolError: the call is refused.
        """

    def instructions(self) -> str | None:
        """Return advice for the model, after that of the server; called at each handshake.

        What it raises is logged, and so is a value of another type; the client gets no advice then.
        """


def check_feature(feature: Feature) -> None:
    """Raise `RegistrationError` unless the hooks of `feature` can be called as such (EXT-14)."""
    _check_hook(feature, "allow", "call")
    _check_hook(feature, "instructions")


def _check_hook(feature: Feature, name: str, *parameters: str) -> None:
    hook = getattr(feature, name)
    if is_async_callable(hook) or not takes(hook, len(parameters)):
        subject = f"{type(feature).__qualname__}.{name}"
        written = ", ".join(("self", *parameters))
        raise RegistrationError(f"{subject} is refused: write `def {name}({written})`")


class OwnFeature(RuntimeFeature):
    """Lets a feature of an author join: its hooks are those of `Feature`, whatever else it has."""

    def __init__(self, feature: Feature, logger: StructuredLogger) -> None:
        self._feature = feature
        self._logger = logger

    def allow(self, call: Invocation) -> None:
        """Ask the author whether a call may start.

        Raises:
            ToolError: the author refuses it.
            TypeError: the author returned a value, which allows nothing (EXT-16).
        """
        allow: Callable[[Invocation], object] = self._feature.allow
        if (answer := allow(call)) is not None:
            raise self._wrong("allow", answer, "None, or raise ToolError to refuse a call")

    def instructions(self) -> str | None:
        """Return the author's advice; log one that fails, and leave it out (EXT-15)."""
        try:
            advice: object = self._feature.instructions()
            if advice is None or isinstance(advice, str):
                return advice
            raise self._wrong("instructions", advice, "a string or None")
        except Exception as error:
            self._logger.error("instructions failed", {"error": describe_exception(error)})
            return None

    def _wrong(self, hook: str, value: object, wanted: str) -> TypeError:
        subject = f"{type(self._feature).__qualname__}.{hook}"
        return TypeError(f"{subject} returned {type(value).__name__}: return {wanted}")
