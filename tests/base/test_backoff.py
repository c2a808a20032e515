"""The exponential backoff of the whole package."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.backoff import exponential_delay


def test_delay_doubles_up_to_the_maximum() -> None:
    delays = [exponential_delay(attempt, 1.0, 30.0) for attempt in range(1, 8)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@given(
    st.integers(1, 10**9),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.floats(1, 1e300),
)
def test_delay_never_exceeds_the_maximum_and_never_shrinks(
    attempt: int, base: float, maximum: float, multiplier: float
) -> None:
    delay = exponential_delay(attempt, base, maximum, multiplier)
    assert 0 <= delay <= maximum
    assert delay <= exponential_delay(attempt + 1, base, maximum, multiplier)
