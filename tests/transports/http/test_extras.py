"""Features without their extra name it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
sys.modules[{missing!r}] = None
from foundation_rt.errors import MissingExtraError
try:
    {use}
except MissingExtraError as error:
    print(error.extra)
"""


@pytest.mark.parametrize(
    ("missing", "use", "extra"),
    [
        ("redis", "import foundation_rt.transports.http.event_store_redis", "redis"),
        ("pyrate_limiter", "import foundation_rt.middleware.rate_limit", "http"),
        (
            "redis",
            "from foundation_rt.middleware.rate_limit import RedisBuckets;"
            " RedisBuckets('redis://127.0.0.1:1', None, None)",
            "redis",
        ),
    ],
)
def test_missing_extra_is_named(missing: str, use: str, extra: str) -> None:
    program = _PROGRAM.format(missing=missing, use=use)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == extra
