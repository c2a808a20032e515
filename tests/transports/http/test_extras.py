"""Features without their extra name it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
        ("redis", "import foundation_rt.http.event_store_redis", "redis"),
        ("redis", "import foundation_rt.http.authorization.redis_store", "redis"),
        ("pyrate_limiter", "import foundation_rt.features.rate_limit", "http"),
        (
            "redis",
            "from foundation_rt.features.rate_limit import RedisBuckets;"
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


_COMMAND = """
import sys
for name in ("starlette", "prometheus_client", "psycopg", "httptools"):
    sys.modules[name] = None
from foundation_rt.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.rule("ERR-11")
@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (("serve", "--http", "0", "--config", "own.toml"), "http,redis,metrics"),
        (("serve", "--http", "0", "--workers", "2", "--config", "own.toml"), "http,redis,metrics"),
        (("host", "--store", "postgresql://a/b", "--model", "openai"), "http,host,host-openai"),
        (("ask", "hi", "--model", "openai"), "host,host-openai"),
        (("gateway", "servers.json", "--http", "0"), "http,client"),
        (("openapi", "api.json", "--base-url", "http://a/v1", "--http", "0"), "openapi,http"),
    ],
)
def test_message_names_all_extras_that_a_command_needs(
    words: tuple[str, ...], extras: str, tmp_path: Path
) -> None:
    settings = '[telemetry]\nmetrics = true\n[rate_limit]\nstore = "redis://127.0.0.1"\n'
    (tmp_path / "own.toml").write_text(settings)
    (tmp_path / "servers.json").write_text('{"mcpServers": {"far": {"url": "http://a/mcp"}}}')
    (tmp_path / "api.json").write_text('{"openapi": "3.1.0", "info": {"title": "A"}, "paths": {}}')
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    [named] = re.findall(r"foundation-rt\[(.*?)\]", done.stderr)
    assert set(extras.split(",")) <= set(named.split(","))
