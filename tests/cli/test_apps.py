"""Which server a name on the command line stands for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from foundation_rt import Server, UsageError
from foundation_rt.cli.server_loading import AppError, load_app
from foundation_rt.cli.targets import find_target

ONE = "from foundation_rt import Server\nserver = Server('one')\n"
MOUNTED = (
    "from foundation_rt import Server\nserver = Server('part')\nouter = Server('whole')\n"
    "outer.mount(server)\n"
)
TWO = "from foundation_rt import Server\nfirst = Server('first')\nsecond = Server('second')\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder for apps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def name_of(server: Server) -> str:
    return server.runtime.config.server.name


def refusal(target: str) -> str:
    """Return the error for a target that cannot be loaded."""
    with pytest.raises(AppError) as raised:
        load_app(target)
    assert isinstance(raised.value, UsageError)
    return str(raised.value)


def target_refusal(target: str) -> str:
    """Return the error for a folder as the TARGET of a command."""
    with pytest.raises(AppError) as raised:
        find_target(target, [], {})
    return str(raised.value)


@pytest.mark.rule("CLI-02")
@pytest.mark.parametrize(
    ("source", "target", "name"),
    [
        (ONE, "app.py", "one"),
        (ONE, "app.py:server", "one"),
        (ONE, "./app.py", "one"),
        (ONE, "app", "one"),
        (ONE, "app:server", "one"),
        (TWO, "app.py:first", "first"),
        (TWO, "app:second", "second"),
        (TWO + "server = second\n", "app.py", "second"),
        (ONE + "other = Server('other')\n", "app.py", "one"),
        (ONE.replace("server =", "only ="), "app.py", "one"),
        (ONE.replace("server =", "only =") + "alias = only\n", "app.py", "one"),
        (ONE.replace("server =", "only =") + "server = 5\n", "app.py", "one"),
        (MOUNTED, "app.py", "whole"),
    ],
)
def test_a_server_is_found(folder: Path, source: str, target: str, name: str) -> None:
    (folder / "app.py").write_text(source)
    assert name_of(load_app(target)) == name


@pytest.mark.rule("CLI-02")
def test_a_path_may_hold_colons_and_spaces(folder: Path) -> None:
    place = folder / "a:b c"
    place.mkdir()
    (place / "my app.py").write_text(ONE)
    assert name_of(load_app(str(place / "my app.py"))) == "one"
    assert name_of(load_app(str(place / "my app.py") + ":server")) == "one"


@pytest.mark.rule("CLI-02")
def test_a_module_in_a_package_is_found(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "tools.py").write_text(ONE)
    assert name_of(load_app("package.tools:server")) == "one"


@pytest.mark.rule("CLI-02")
def test_file_can_import_its_neighbours_and_itself(folder: Path) -> None:
    place = folder / "apps"
    place.mkdir()
    (place / "helper_of_app.py").write_text("NAME = 'from a helper'\n")
    (place / "app.py").write_text(
        "from __future__ import annotations\n"
        "import sys\n"
        "from helper_of_app import NAME\n"
        "from foundation_rt import Server\n"
        "class Place:\n"
        "    pass\n"
        "assert sys.modules[__name__].Place is Place\n"
        "server = Server(NAME)\n"
    )
    assert name_of(load_app("apps/app.py")) == "from a helper"


@pytest.mark.rule("CLI-02")
def test_a_file_is_not_the_main_program(folder: Path) -> None:
    (folder / "app.py").write_text(
        ONE + "assert __name__ != '__main__'\nif __name__ == '__main__':\n    server.run()\n"
    )
    assert name_of(load_app("app.py")) == "one"


@pytest.mark.rule("CLI-02")
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.py", ["no file", "nowhere.py"]),
        ("nowhere", ["no module", "nowhere", ".py"]),
        ("nowhere.tools", ["no module", "nowhere.tools"]),
        ("folder.py", ["no file", "folder.py"]),
        (":server", [":server"]),
        ("app.py:", ["app.py:"]),
        ("app.py:a b", ["app.py:a b"]),
        ("app.py:absent", ["app.py", "'absent'", "not there"]),
        ("app.py:number", ["app.py", "'number'", "int"]),
        ("empty.py", ["empty.py", "no foundation_rt.Server"]),
        ("two.py", ["two.py", "first, second", "two.py:first"]),
        ("broken.py", ["broken.py", "SyntaxError", "line 3"]),
        ("needy.py", ["needy.py", "ModuleNotFoundError", "no_such_dependency"]),
        ("needy", ["needy", "ModuleNotFoundError", "no_such_dependency"]),
        ("leaving.py", ["leaving.py", "sys.exit(7)"]),
        ("failing.py", ["failing.py", "ZeroDivisionError"]),
        ("refused.py", ["refused.py", "'tool'", "'x'"]),
    ],
)
def test_app_that_cannot_be_loaded_is_refused_with_the_reason(
    folder: Path, target: str, words: list[str]
) -> None:
    sources = {
        "app": ONE + "number = 5\n",
        "empty": "x = 5\n",
        "two": TWO,
        "broken": ONE + "def :\n",
        "needy": ONE + "import no_such_dependency\n",
        "leaving": ONE + "import sys\nsys.exit(7)\n",
        "failing": ONE + "1 / 0\n",
        "refused": ONE + "@server.tool\ndef tool(*x): ...\n",
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "folder.py").mkdir()
    message = refusal(target)
    assert not [word for word in words if word not in message], message


@pytest.mark.rule("CLI-85")
@pytest.mark.parametrize("target", [".", "./", "apps", "apps/"])
def test_folder_is_refused_with_the_file_to_name(folder: Path, target: str) -> None:
    place = folder / target
    place.mkdir(exist_ok=True)
    (place / "tools.py").write_text(ONE)
    (place / "other.py").write_text("x = 5\n")
    for message in (refusal(target), target_refusal(target)):
        assert message == f"{target} is a folder: name the file with the server, " + str(
            Path(target) / "tools.py"
        )
    (place / "tools.py").unlink()
    assert "none of its files imports foundation_rt" in refusal(target)


@pytest.mark.rule("CLI-03")
@pytest.mark.parametrize("target", ["app.py", "app", "app.py:server"])
def test_a_server_that_runs_while_it_is_imported_is_refused(folder: Path, target: str) -> None:
    (folder / "app.py").write_text(ONE + "server.run()\n")
    message = refusal(target)
    assert message.startswith(target.partition(":")[0])
    assert '`if __name__ == "__main__":`' in message


@pytest.mark.rule("CLI-03")
def test_server_that_runs_on_import_is_refused_even_if_the_app_catches_errors(folder: Path) -> None:
    # An importing module cannot hide the error from the author.
    (folder / "culprit.py").write_text(ONE + "server.run()\n")
    (folder / "app.py").write_text("import culprit\n")
    assert '`if __name__ == "__main__":`' in refusal("app.py")


@pytest.mark.rule("CLI-03")
def test_refusal_leaves_no_state(folder: Path) -> None:
    (folder / "app.py").write_text(ONE + "server.run()\n")
    refusal("app.py")
    (folder / "app.py").write_text(ONE)
    assert name_of(load_app("app.py")) == "one"


@pytest.mark.rule("CLI-02", "CLIENT-38")
def test_a_file_of_another_sdk_says_how_to_start_it(tmp_path: Path) -> None:
    source = tmp_path / "server.py"
    source.write_text("server = 5")
    with pytest.raises(AppError, match=re.escape(f'"python {source}"')):
        load_app(str(source))
