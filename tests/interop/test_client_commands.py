"""The commands that ask, asking servers that nobody here wrote."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

import orjson
import pytest

from foundation_rt.cli.main import main
from tests.interop import servers

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing configures anything."""
    for name in os.environ:
        if name.startswith(("FOUNDATION_RT_", "MCP_")):
            monkeypatch.delenv(name)


@pytest.mark.rule("CLI-05", "CLI-09", "CLI-10", "CLI-16", "CLI-17", "CLI-18")
@pytest.mark.parametrize("make", [servers.python, servers.typescript])
def test_the_official_servers_over_http(make: Callable[[], list[str]], capsys: Captured) -> None:
    with servers.listening(make()) as listening:
        url = listening.url
        assert main(["inspect", url]) == 0
        expected = "\nadd\nAdd two numbers.\ntakes:\n  a  integer  required\n"
        assert expected in capsys.readouterr().out
        assert main(["inspect", url, "--json"]) == 0
        assert len(orjson.loads(capsys.readouterr().out)["tools"]) == 15
        assert main(["call", url, "add", "a=2", "b:=3"]) == 0
        assert orjson.loads(capsys.readouterr().out) == {"total": 5}
        assert main(["call", url, "add", "a=2", "b=2.5"]) == 2
        assert main(["call", url, "fail"]) == 1
        capsys.readouterr()
        assert main(["ping", url, "--count", "3"]) == 0
        assert capsys.readouterr().out.startswith("3 of 3 answered\n")


@pytest.mark.rule("CLI-05", "CLI-09", "CLI-16", "CLI-18")
def test_server_everything_as_a_command(capsys: Captured) -> None:
    target = shlex.join(servers.npm("everything"))
    assert main(["inspect", target]) == 0
    assert "RESOURCE TEMPLATES  2" in capsys.readouterr().out
    assert main(["call", target, "get-sum", "a=2", "b=0.5"]) == 0
    assert capsys.readouterr().out == "The sum of 2 and 0.5 is 2.5.\n"
    assert main(["read", target, "demo://resource/dynamic/text/1"]) == 0
    assert "Resource 1" in capsys.readouterr().out
    assert main(["prompt", target, "args-prompt", "city=Oslo"]) == 0
    assert capsys.readouterr().out == "user\nWhat's weather in Oslo?\n"
