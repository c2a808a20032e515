"""Every input that the fuzzer has kept, once more."""

from __future__ import annotations

import pytest

from . import corpus
from .targets import TARGETS


@pytest.mark.rule("FRAME-01", "RPC-01", "ERR-06", "SCHEMA-27", "CONF-06", "LOG-06")
@pytest.mark.parametrize("target", TARGETS)
def test_kept_inputs_hold_what_the_target_promises(target: str) -> None:
    inputs = corpus.read(target)
    assert inputs
    for data in inputs:
        TARGETS[target](data)
