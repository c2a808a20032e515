"""A soak finds what grows: what is planted in its rows, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from .__main__ import Row

MB = 1024 * 1024


def row_of(rests: list[dict[str, int]]) -> Row:
    """Return a row with these rests, 100,000 calls apart."""

    async def look() -> dict[str, int]:
        raise AssertionError("it is at rest")

    found = Row("server", lambda: 0, look)
    found.seen = [(100_000 * at, rest) for at, rest in enumerate(rests)]
    return found


def rest(at: int, **planted: Any) -> dict[str, int]:
    """Return what is held at a rest; what is planted is a function of its number."""
    held = {"memory": 30 * MB + (at % 3) * 50_000, "threads": 5 + (at % 2), "calls": 0}
    return held | {name: value(at) for name, value in planted.items()}


def test_a_process_that_only_varies_is_sound() -> None:
    assert row_of([rest(at) for at in range(20)]).faults() == []


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ({"memory": lambda at: 30 * MB + at * 200_000}, "memory grows by 1.91 MB"),
        ({"threads": lambda at: 5 + at // 4}, "threads 6 after the warm-up, 8 at the end"),
        ({"calls": lambda at: 1}, "calls 1 after the warm-up, 1 at the end"),
    ],
)
def test_what_grows_is_found(planted: dict[str, Any], found: str) -> None:
    [fault] = row_of([rest(at, **planted) for at in range(20)]).faults()
    assert found in fault
