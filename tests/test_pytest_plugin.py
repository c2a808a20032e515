"""The fixture `mcp_client`, in runs of pytest of their own that find it by its entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.programs.pytest_run import run_pytest

SERVER = """\
from foundation_rt import Server

server = other = Server("shop")
seen = []


@server.tool
def order(item: str) -> str:
    seen.append(item)
    return f"one {item}"
"""

INI = "[pytest]\nmcp_server = shop.py\nfilterwarnings = error\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a server and the configuration of pytest."""
    (tmp_path / "shop.py").write_text(SERVER)
    (tmp_path / "pytest.ini").write_text(INI)
    return tmp_path


def run(folder: Path, test: str) -> str:
    """Run pytest on one file of tests below the folder; return what it printed."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_shop.py").write_text(test)
    return run_pytest(folder, "tests")


@pytest.mark.rule("EMBED-08", "EMBED-09")
def test_fixture_is_a_client_of_the_server_that_the_configuration_names(folder: Path) -> None:
    printed = run(
        folder,
        "import sys\n\n\n"
        "def test_order(mcp_client):\n"
        "    assert mcp_client.call('order', {'item': 'tea'}).text == 'one tea'\n"
        "    from shop import seen\n"
        "    assert seen == ['tea']\n\n\n"
        "def test_order_again(mcp_client):\n"
        "    assert [each.name for each in mcp_client.list_tools()] == ['health', 'order']\n"
        "    assert mcp_client.call('order', {'item': 'milk'}).text == 'one milk'\n\n\n"
        "def test_arguments_are_those_of_pytest():\n"
        "    assert 'pytest' in sys.argv[0]\n",
    )
    assert "3 passed" in printed


@pytest.mark.rule("EMBED-09")
def test_marker_names_the_server_beside_the_test_or_is_given_it(folder: Path) -> None:
    (folder / "tests").mkdir()
    (folder / "tests" / "bar.py").write_text(SERVER.replace("one {item}", "two {item}"))
    printed = run(
        folder,
        "import asyncio\nimport pytest\nfrom bar import server\n\n\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "@pytest.mark.mcp_server('bar.py:other')\n"
        "def test_file(mcp_client, number):\n"
        "    assert mcp_client.call('order', {'item': 'tea'}).text == 'two tea'\n\n\n"
        "@pytest.mark.mcp_server(server)\n"
        "def test_object(mcp_client):\n"
        "    async def inside_of_a_loop():\n"
        "        return mcp_client.call('order', {'item': 'tea'}).text\n\n"
        "    assert asyncio.run(inside_of_a_loop()) == 'two tea'\n",
    )
    assert "3 passed" in printed


@pytest.mark.rule("EMBED-09")
def test_server_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "json.py").write_text(SERVER)
    problems = {
        "": "mcp_client needs a server: mcp_server = FILE.py",
        "@pytest.mark.mcp_server('absent.py')": "there is no file",
        "@pytest.mark.mcp_server('json.py')": "another module json is imported",
        "@pytest.mark.mcp_server('../shop.py', extensions={})": "takes the server alone",
    }
    tests = (
        f"{mark}\ndef test_order_{number}(mcp_client):\n    pass\n\n\n"
        for number, mark in enumerate(problems)
    )
    printed = run(folder, "import json\nimport pytest\n\n\n" + "".join(tests))
    assert "4 errors" in printed
    for message in problems.values():
        assert message in printed


@pytest.mark.rule("EMBED-08")
def test_run_without_the_fixture_loads_nothing_of_the_runtime(folder: Path) -> None:
    printed = run(
        folder,
        "import sys\n\n\n"
        "def test_modules():\n"
        "    loaded = {name for name in sys.modules if name.startswith('foundation_rt')}\n"
        "    known = {'', '.base', '.base.lazy_names', '.cli', '.cli.pytest_plugin', '.version'}\n"
        "    assert loaded == {f'foundation_rt{name}' for name in known}\n",
    )
    assert "1 passed" in printed
