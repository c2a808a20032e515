"""The features that come with the runtime, each a few rows.

What stands in a row is imported when it is first used: most servers never need most of it.
"""

from __future__ import annotations

from typing import ClassVar

from ..kernel.feature import Feature, lazy
from ..protocol.jsonrpc import Batch


class Batches(Feature):
    """JSON-RPC batches (RPC-13)."""

    messages: ClassVar = {Batch: lazy("foundation_rt.features.batches", "answer_batch")}


def built_in() -> list[Feature]:
    """Return the features of a new server."""
    return [Batches()]
