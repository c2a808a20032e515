"""The check that what an extra brings is installed; it loads none of it."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import MissingExtraError


def require(what: str, extra: str, *modules: str) -> None:
    """Raise `MissingExtraError` unless the modules that `what` needs are installed."""
    if not all(map(find_spec, modules)):
        raise MissingExtraError(what, extra)
