"""Settings that every test runs under."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.sizes import FULL, examples

# No deadline: timings on shared machines are noise. A failure prints what reproduces it.
settings.register_profile(
    "foundation",
    deadline=None,
    max_examples=examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("foundation")


def pytest_report_header() -> str:
    """Say how much the random tests try."""
    return f"sizes of random tests: {'full' if FULL else 'small (FOUNDATION_RT_TEST_SIZE=full)'}"
