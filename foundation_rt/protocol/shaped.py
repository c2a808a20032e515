"""The one thing the hot path must know of explicit results: how to tell them from plain values.

Content has a module of its own, which a server that returns plain values never imports.
"""

from __future__ import annotations


class Shaped:
    """What a handler returns in order to shape its result itself (CONT-01)."""

    __slots__ = ()
