"""The output of `make demo`."""

from __future__ import annotations

import re
import subprocess
import sys

import orjson
import pytest

from tests.support.process import PATIENCE, environment


@pytest.mark.rule("CLI-01", "LIFE-02", "CALL-05", "CALL-08", "TIME-02", "HEALTH-01", "PROC-04")
def test_tour_prints_every_message_and_the_log() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foundation_rt.cli.tour"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    chapters = done.stdout.split("\n# ")
    titles = [chapter.partition("\n")[0] for chapter in chapters[1:]]
    expected = [
        *("Handshake", "tools", "works", "validation", "times out", "payload limit", "Health"),
        *("End of file", "logged"),
    ]
    assert len(titles) == len(expected)
    for title, word in zip(titles, expected, strict=True):
        assert word in title
    shown = dict(zip(expected, chapters[1:], strict=True))
    assert "2025-11-25" in shown["Handshake"]
    assert "notifications/initialized" in shown["Handshake"]
    assert "echo" in shown["tools"]
    assert '\\"message\\":\\"hello\\"' in shown["works"]
    assert "INVALID_ARGUMENT" in shown["validation"]
    assert "TIMEOUT" in shown["times out"]
    assert "RESOURCE_EXHAUSTED" in shown["payload limit"]
    assert "payload_too_large" in shown["payload limit"]
    assert '\\"toolTimeoutMs\\":300' in shown["Health"]
    assert '\\"status\\":' in shown["Health"]
    assert "exits with 0" in shown["End of file"]
    assert sorted(re.findall('"outcome":"([a-z_]+)"', shown["logged"])) == [
        *("success", "success", "timeout", "tool_error", "tool_error"),
    ]
    requests = re.findall(r"^  --> (\{.*\})$", done.stdout, re.MULTILINE)
    assert [orjson.loads(line)["method"] for line in requests][:3] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]


@pytest.mark.rule("CONF-04")
def test_tour_fails_if_the_server_does_not_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foundation_rt.cli.tour"],
        env=environment({"logging.level": "loud"}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode != 0
    assert "the server ended before it answered" in done.stderr
