"""Bundles and `server.json`, as others check them; a bundle, installed and used."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from hashlib import sha256
from pathlib import Path

import orjson
import pytest
from jsonschema_rs import validator_for

from foundation_rt.base.mcp_json import ServerFile
from foundation_rt.client.connecting import connect
from foundation_rt.client.targets import server_of
from foundation_rt.version import __version__
from tests.lab.places.services import need_registry
from tests.lab.programs import node
from tests.lab.programs.python_environment import UV
from tests.lab.servers.process import PATIENCE, command, environment

ROOT = Path(__file__).parents[2]
SCHEMA_URL = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
SCHEMA_DIGEST = "3fba09590c99f61735d234822279f4223fab9e300c0a81e81c91ab62a4114de0"
APP = '''"""Forecasts of a town."""

import os
from pathlib import Path

from foundation_rt import Server

server = Server("weather", version="1.0.0", title="Weather", website_url="https://example.com")


@server.tool
def forecast(city: str) -> list[str]:
    """Forecast the weather of a city."""
    place = Path(__file__).with_name("data") / "a.txt"
    return [city, os.environ["WEATHER_TOKEN"], os.environ.get("UNITS", "metric"), place.read_text()]
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a bundle and its `server.json`, in the folder `dist`."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").write_text("sunny")
    (folder / "tools.py").write_text(APP)
    (folder / "requirements.txt").write_text(f"foundation-rt=={__version__}\n")
    registry = ("--namespace", "com.example", "--url", "https://example.com/weather.mcpb")
    run(*command("package", "tools.py", "--file", "data", *registry), cwd=folder)
    return folder


def run(*words: object, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if done.returncode != 0:
        need_registry(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.rule("PKG-01", "PKG-13")
def test_official_tool_takes_the_bundle(folder: Path, tmp_path: Path) -> None:
    program = node.install(Path(__file__).parent) / "@anthropic-ai/mcpb/dist/cli/cli.js"
    bundle = folder / "dist" / "weather-1.0.0.mcpb"
    run(node.NODE, program, "unpack", bundle, tmp_path / "unpacked", cwd=tmp_path)
    said = run(node.NODE, program, "validate", tmp_path / "unpacked", cwd=tmp_path)
    assert "Manifest schema validation passes!" in said
    assert "weather-1.0.0.mcpb" in run(node.NODE, program, "info", bundle, cwd=tmp_path)
    assert (tmp_path / "unpacked" / "server" / "tools.py").read_text() == APP


def registry_schema() -> bytes:
    """Return the schema of the registry, which is kept below build; skip where it is not there."""
    kept = ROOT / "build" / "registry" / "2025-12-11.json"
    if not kept.exists():
        try:
            with urllib.request.urlopen(SCHEMA_URL, timeout=20) as answer:
                found = answer.read()
        except OSError as error:
            pytest.skip(f"{SCHEMA_URL} cannot be reached: {error}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(found)
    found = kept.read_bytes()
    assert sha256(found).hexdigest() == SCHEMA_DIGEST
    return found


@pytest.mark.rule("PKG-08")
def test_registry_takes_server_json(folder: Path) -> None:
    found = orjson.loads((folder / "dist" / "server.json").read_bytes())
    check = validator_for(orjson.loads(registry_schema()))
    assert [*check.iter_errors(found)] == []
    assert not check.is_valid({**found, "name": "no namespace"})


@pytest.mark.rule("PKG-04", "PKG-09")
async def test_installed_bundle_serves_a_client(folder: Path, tmp_path: Path) -> None:
    """The wheel comes from this checkout, what it needs from PyPI; `uv` installs both."""
    wheels = tmp_path / "wheels"
    run(UV, "build", "--quiet", "--wheel", "--out-dir", wheels, ROOT, cwd=tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    words = ("--bundle", "dist/weather-1.0.0.mcpb", "--set-env", "WEATHER_TOKEN=MINE", "--yes")
    where = (f"UV_FIND_LINKS={wheels}", f"UV_PYTHON={sys.executable}", "UV_CACHE_DIR")
    cache = run(UV, "cache", "dir", cwd=tmp_path).strip()
    path = f"{UV.parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"HOME": str(home), "MINE": "hush", "UV_CACHE_DIR": cache, "PATH": path}
    given = (word for each in where for word in ("--env", each))
    run(*command("install", "cursor", *words, *given), cwd=folder, **variables)
    entry = ServerFile.read(home / ".cursor" / "mcp.json").entry("weather", {})
    async with connect(server_of(entry), timeout=PATIENCE, connect_timeout=PATIENCE) as client:
        result = await client.call("forecast", {"city": "Oslo"})
    assert result.value() == ["Oslo", "hush", "metric", "sunny"]
