"""Features without their extra name it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.programs.program import run_source

_PROGRAM = """
import sys
sys.modules[{missing!r}] = None
from foundation_rt.errors import MissingExtraError
try:
    {use}
except MissingExtraError as error:
    print(error.extra)
"""


_OAUTH = (
    "from foundation_rt import Server;"
    " section = dict(issuer='https://a.example', audience='https://b.example');"
    " Server('a', config={'oauth': section}).asgi_app()"
)
_WORKERS = (
    "from foundation_rt.http.cluster.worker_processes import keep_workers; keep_workers([], 2)"
)


@pytest.mark.parametrize(
    ("missing", "use", "extra"),
    [
        ("redis", "import foundation_rt.http.event_store_redis", "redis"),
        ("redis", "import foundation_rt.http.authorization_server.redis_store", "redis"),
        ("pyrate_limiter", "import foundation_rt.features.rate_limit", "http-full"),
        ("cryptography", "import foundation_rt.http.seal", "http-full"),
        ("joserfc", "import foundation_rt.http.authorization_server", "http-full"),
        ("joserfc", "import foundation_rt.client.auth.proofs", "client-oauth"),
        (
            "starlette",
            "from foundation_rt.http.asgi import with_cors; with_cors(0, ['*'])",
            "http-full",
        ),
        ("joserfc", _OAUTH, "http-full"),
        ("tomlkit", "from foundation_rt.cli.client_entries import _tomlkit; _tomlkit()", "cli"),
        ("libcst", "from foundation_rt.cli.migrate import _migrated; _migrated('')", "migrate"),
        ("cryptography", _WORKERS, "http-full"),
        ("opentelemetry", "import foundation_rt.features.otel_metrics", "otel"),
        (
            "yaml",
            "from foundation_rt.features.openapi.documents import parse_text;"
            " parse_text(b'a: 1', 'it')",
            "openapi",
        ),
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
    done = run_source(program)
    assert done.stdout.strip() == extra


_COMMAND = """
import sys
for name in ("cryptography", "starlette", "prometheus_client", "psycopg", "httptools"):
    sys.modules[name] = None
from foundation_rt.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.rule("ERR-11")
@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (("serve", "--http", "0", "--config", "own.toml"), "http,redis,metrics"),
        (
            ("serve", "--http", "0", "--workers", "2", "--config", "own.toml"),
            "http-full,redis,metrics",
        ),
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


_PLAIN = """
import sys
for name in ("cryptography", "joserfc", "pyrate_limiter", "starlette"):
    sys.modules[name] = None
from foundation_rt.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_plain_server_needs_the_extra_http_alone(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from foundation_rt import Server\nserver = Server('plain')\n")
    words = ("serve", str(tmp_path / "app.py"), "--http", "0", "--no-auth")
    with subprocess.Popen(
        [sys.executable, "-c", _PLAIN, *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert next((line for line in lines if "serving over HTTP" in line), "")
        process.terminate()
