"""Settings that every test runs under."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadline: timings on shared machines are noise. A failure prints what reproduces it.
settings.register_profile(
    "foundation", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("foundation")
