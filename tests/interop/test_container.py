"""The container of the guide to deployment, built and asked."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.lab.programs.python_environment import UV
from tests.lab.servers.http_server import free_port

ROOT = Path(__file__).parents[2]
BUILD_PATIENCE = 600.0


def docker(*words: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        ["docker", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=BUILD_PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def why_not() -> str:
    """Return why there is no container here; "" if there can be one."""
    try:
        found = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"docker cannot be run: {error}"
    return "" if found.returncode == 0 else f"docker has no daemon: {found.stderr.strip()[:200]}"


def test_container_of_the_guide_is_ready_and_ends_at_sigterm(tmp_path: Path) -> None:
    if problem := why_not():
        pytest.skip(problem)
    text = (ROOT / "spec/guide/deployment.md").read_text("utf-8")
    [dockerfile] = re.findall(r"```dockerfile\n(.*?)```", text, re.DOTALL)
    (tmp_path / "Dockerfile").write_text(dockerfile)
    (tmp_path / "tools.py").write_text(
        'from foundation_rt import Server\n\nserver = Server("weather", version="1.0.0")\n'
    )
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT], check=True)
    image = docker("build", "--quiet", ".", cwd=tmp_path)
    port = free_port()
    keys = "FOUNDATION_RT_HTTP__API_KEYS=a-key-of-more-than-sixteen-characters"
    run = ("run", "--detach", "--rm", "--publish", f"127.0.0.1:{port}:8000", "--env", keys, image)
    container = docker(*run)
    try:
        log = subprocess.Popen(["docker", "logs", "--follow", container], stderr=subprocess.PIPE)
        assert log.stderr is not None
        with log, log.stderr:
            assert any(b"serving over HTTP" in line for line in log.stderr)
            answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60)
            assert answer.status == 200
            docker("stop", "--time", "30", container)
    finally:
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, timeout=60)
