"""What a definition may say, checked when it is registered: the refusal names what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..errors import RegistrationError
from ..protocol.content import Icon
from .tools import MAX_TIMEOUT_MS

MAX_NAME_LENGTH = 256


class DefinitionChecks:
    """Checks the parts of one definition.

    Args:
        what: the definition, as a refusal names it: ``resource 'task://all'``.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def refusal(self, problem: str) -> RegistrationError:
        """The error that refuses it."""
        return RegistrationError(f"{self.what} is refused: {problem}")

    def name(self, where: str, value: object) -> None:
        """A printable string of bounded length, without white space at its ends."""
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
            raise self.refusal(f"{where} must be a string of 1 to {MAX_NAME_LENGTH} characters")
        if not value.isprintable() or value != value.strip():
            raise self.refusal(f"{where} must be printable, without white space at its ends")

    def text(self, where: str, value: object) -> None:
        """A string that can be sent: one with lone surrogates cannot; or None."""
        if value is None:
            return
        try:
            if isinstance(value, str) and value.encode() is not None:
                return
        except UnicodeEncodeError:
            pass
        raise self.refusal(f"{where} must be a string of valid Unicode")

    def number(self, where: str, value: object, least: int, most: int) -> None:
        """A whole number in a range; or None."""
        if value is not None and not (type(value) is int and least <= value <= most):
            raise self.refusal(
                f"{where} must be a whole number from {least} to {most}, not {value!r}"
            )

    def timeout(self, value: object) -> None:
        """A deadline in ms that every timer takes; or None."""
        self.number("timeout_ms", value, 1, MAX_TIMEOUT_MS)

    def instance(self, where: str, value: object, kind: type) -> None:
        """An instance of `kind`."""
        if not isinstance(value, kind):
            raise self.refusal(f"{where} must be {kind.__name__}, not {type(value).__name__}")

    def icons(self, value: object) -> None:
        """A sequence of icons."""
        if not isinstance(value, Sequence) or not all(isinstance(each, Icon) for each in value):
            raise self.refusal("icons must be a sequence of Icon")

    def meta(self, value: object) -> dict[str, Any] | None:
        """A private copy of a JSON object; or None."""
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refusal("meta must be a mapping")
        try:
            # As deep as lists nest it, and three levels more: orjson writes 254.
            orjson.dumps([[[[[dict(value)]]]]])
            copy: dict[str, Any] = orjson.loads(orjson.dumps(dict(value)))
        except TypeError as error:
            raise self.refusal(f"meta must be JSON: {error}") from None
        return copy

    def handler(self, value: object) -> None:
        """Something that can be called."""
        if not callable(value):
            raise self.refusal("the handler is not callable")
