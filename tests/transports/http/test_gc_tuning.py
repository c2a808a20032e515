"""How often garbage is looked for."""

from __future__ import annotations

import gc

import pytest

from foundation_rt.transports.http.serve import collecting_rarely


def test_it_is_as_before_when_serving_is_over() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), collecting_rarely():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
        raise ZeroDivisionError
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
