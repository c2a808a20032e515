"""Read the client's answers: what a model said, and which roots there are (ASK-09)."""

from __future__ import annotations

from typing import Any, cast

from attrs import frozen

from ...base.structuring import Structurer, StructuringError
from .errors import InvalidClientResult
from .roots import Root
from .sampling import SampledBlock, SampleResult


@frozen
class _RootsResult:
    """The result of `roots/list`."""

    roots: tuple[Root, ...]


def read_sample(answer: Any) -> SampleResult:
    """Return the result of `sampling/createMessage`.

    Raises:
        InvalidClientResult: it is invalid.
    """
    return cast("SampleResult", _read(answer, SampleResult))


def read_roots(answer: Any) -> tuple[Root, ...]:
    """Return the roots that the result of `roots/list` has.

    Raises:
        InvalidClientResult: it is invalid.
    """
    return cast("_RootsResult", _read(answer, _RootsResult)).roots


def _read(answer: Any, kind: type) -> Any:
    try:
        return _ANSWERS.structure(answer, kind)
    except StructuringError as error:
        raise InvalidClientResult(*error.issues) from None


_ANSWERS = Structurer(leaves_out=True)
_ANSWERS.register_kinds(SampledBlock)
_ANSWERS.register_one_or_several(tuple[SampledBlock, ...])
