"""Bundles of programs, and their `server.json`."""

from __future__ import annotations

import os
import sys
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.cli.bundles import contents
from foundation_rt.cli.main import main
from foundation_rt.version import __version__

APP = '''"""Forecasts of a town.

More about it.
"""

import os
import sys
from pathlib import Path

import attrs

from foundation_rt import Server
from foundation_rt.config.sections import Integer, ListOf, Pattern, Settings, flag, setting


@attrs.frozen(kw_only=True)
class Shop(Settings):
    limit: int = setting(5, Integer(1, 10), "Orders of a page.")
    is_open: bool = flag(True, "Whether it is open.")
    towns: tuple[str, ...] = setting(("a", "b"), ListOf(Pattern("[a-z]+", "letters")), "Towns.")
    pin: str | None = setting(
        None, Pattern("[0-9]+", "digits", optional=True, is_secret=True), "A secret."
    )


server = Server(
    "My weather", version="1.2.3", title="The weather", website_url="https://example.com/w",
    sections={"shop": Shop},
)
UNITS = os.environ.get("UNITS", "metric")


@server.tool
def forecast() -> list[str]:
    """Forecast it."""
    return [os.environ["API_TOKEN"], os.getenv("PLACE"), os.environ.get("HOME"), *sys.argv[1:]]


@server.prompt
def review() -> str:
    return "Review it."
'''
PIN = f"foundation-rt=={__version__}"
URL = "https://github.com/ada/w/releases/download/v1/My-weather-1.2.3.mcpb"
REGISTRY = ("--namespace", "io.github.ada", "--url", URL)

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a program, its requirements and what belongs in no bundle."""
    folder = tmp_path / "project"
    (folder / "data" / "inner" / "__pycache__").mkdir(parents=True)
    (folder / "tools.py").write_text(APP)
    (folder / "requirements.txt").write_text(f"# pinned\n{PIN}  # ours\n")
    for name in ("data/a.txt", "data/inner/b.txt", "secret.txt", ".env", "data/.env"):
        (folder / name).write_text(name)
    (folder / "data/inner/__pycache__/b.pyc").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    return folder


def package(*words: str) -> zipfile.ZipFile:
    assert main(["package", "tools.py", "--author", "Ada", *words]) == 0
    return zipfile.ZipFile("dist/My-weather-1.2.3.mcpb")


def manifest_of(bundle: zipfile.ZipFile) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(bundle.read("manifest.json"))
    return found


def refused(capsys: Captured, *words: str, exit_code: int = 1) -> str:
    capsys.readouterr()
    assert main(["package", "tools.py", "--author", "Ada", *words]) == exit_code
    assert not Path("dist").exists()
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.rule("PKG-01", "PKG-02")
def test_bundle_has_what_is_named_and_nothing_beside(project: Path, capsys: Captured) -> None:
    with package("--file", "data", "--file", "data/a.txt") as bundle:
        names = bundle.namelist()
        assert bundle.read("server/tools.py").decode() == APP
    inside = ["server/data/a.txt", "server/data/inner/b.txt", "server/tools.py"]
    assert names == ["manifest.json", "pyproject.toml", *inside]
    out = capsys.readouterr().out
    assert all(name in out for name in names)


@pytest.mark.rule("PKG-02")
def test_same_input_makes_the_same_bytes(project: Path) -> None:
    words = ["package", "tools.py", *REGISTRY, "--file", "data", "--out", "data/out"]
    assert main(words) == 0
    first = [path.read_bytes() for path in sorted(Path("data/out").iterdir())]
    for path in project.rglob("*.txt"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert main(words) == 0
    assert [path.read_bytes() for path in sorted(Path("data/out").iterdir())] == first


@pytest.mark.rule("PKG-04", "PKG-13")
def test_manifest_says_what_the_server_says(project: Path) -> None:
    with package("--", "--db", "x") as bundle:
        manifest = manifest_of(bundle)
        needed = tomllib.loads(bundle.read("pyproject.toml").decode())["project"]
    about = {
        "manifest_version": "0.4",
        "name": "My-weather",
        "display_name": "The weather",
        "version": "1.2.3",
        "description": "Forecasts of a town.",
        "author": {"name": "Ada"},
        "homepage": "https://example.com/w",
        "prompts_generated": True,
    }
    assert {key: manifest[key] for key in about} == about
    assert {"name": "forecast", "description": "Forecast it."} in manifest["tools"]
    server = manifest["server"]
    assert (server["type"], server["entry_point"]) == ("uv", "server/tools.py")
    words = ["-m", "foundation_rt", "serve", "server/tools.py", "--", "--db", "x"]
    assert server["mcp_config"]["args"][-len(words) :] == words
    assert needed["dependencies"] == [PIN]


@pytest.mark.rule("PKG-05")
def test_user_is_asked_for_what_the_program_reads(project: Path) -> None:
    with package() as bundle:
        manifest = manifest_of(bundle)
    options = manifest["user_config"]
    shop = "FOUNDATION_RT_SHOP__"
    own = [f"{shop}{each}" for each in ("IS_OPEN", "LIMIT", "PIN", "TOWNS")]
    assert [*options] == ["API_TOKEN", *own, "PLACE", "UNITS"]
    assert manifest["server"]["mcp_config"]["env"] == {
        name: f"${{user_config.{name}}}" for name in options
    }
    for option in options.values():
        assert option.pop("title") and option.pop("description")
    assert options == {
        "API_TOKEN": {"type": "string", "required": True, "sensitive": True},
        f"{shop}IS_OPEN": {"type": "boolean", "default": True},
        f"{shop}LIMIT": {"type": "number", "default": 5, "min": 1, "max": 10},
        f"{shop}PIN": {"type": "string", "required": True, "sensitive": True},
        f"{shop}TOWNS": {"type": "string", "default": "a,b"},
        "PLACE": {"type": "string", "default": ""},
        "UNITS": {"type": "string", "default": "metric"},
    }


@pytest.mark.rule("PKG-17")
def test_defaults_are_literals_and_no_secrets(project: Path) -> None:
    lines = """
A = os.environ.get("A_TEXT", UNITS)
B = os.environ.get("A_NUMBER", 5)
C = os.getenv("A_SWITCH", False)
D = os.getenv("A_TOKEN", "hush")
E = os.getenv("OTHER_TOKEN")
F = os.environ.get("A_NUMBER", 6)
G = {"NO_VARIABLE": 1}["NO_VARIABLE"]
"""
    Path("tools.py").write_text(APP + lines)
    with package(*REGISTRY) as bundle:
        options = manifest_of(bundle)["user_config"]
    [listed] = orjson.loads(Path("dist/server.json").read_bytes())["packages"]
    inputs = {each["name"]: each for each in listed["environmentVariables"]}
    assert "NO_VARIABLE" not in options
    known = {"A_NUMBER": "5", "A_SWITCH": "", "OTHER_TOKEN": ""}
    for name, default in known.items():
        assert options[name]["default"] == default and "required" not in options[name]
        assert inputs[name].get("default", "") == default and "isRequired" not in inputs[name]
    for name in ("A_TEXT", "A_TOKEN"):
        assert options[name]["required"] and "default" not in options[name]
        assert inputs[name]["isRequired"] and "default" not in inputs[name]


@pytest.mark.rule("PKG-02")
def test_folder_of_the_bundle_may_have_the_program_in_it(project: Path) -> None:
    assert main(["package", "tools.py", "--author", "Ada", "--file", "data", "--out", "."]) == 0
    with zipfile.ZipFile("My-weather-1.2.3.mcpb") as bundle:
        assert {"server/tools.py", "server/data/a.txt"} <= {*bundle.namelist()}


@pytest.mark.rule("PKG-05")
def test_file_that_is_no_python_is_refused(project: Path, capsys: Captured) -> None:
    Path("other.py").write_text("print 1")
    assert "'other.py' cannot be read as Python" in refused(capsys, "--file", "other.py")


@pytest.mark.rule("PKG-08")
def test_server_json_lists_the_bundle(project: Path) -> None:
    package(*REGISTRY).close()
    found = orjson.loads(Path("dist/server.json").read_bytes())
    [bundle] = found.pop("packages")
    assert found == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.ada/My-weather",
        "title": "The weather",
        "description": "Forecasts of a town.",
        "version": "1.2.3",
        "websiteUrl": "https://example.com/w",
    }
    inputs = {each.pop("name"): each for each in bundle.pop("environmentVariables")}
    digest = sha256(Path("dist/My-weather-1.2.3.mcpb").read_bytes()).hexdigest()
    assert bundle == {
        "registryType": "mcpb",
        "identifier": URL,
        "fileSha256": digest,
        "transport": {"type": "stdio"},
    }
    assert inputs["API_TOKEN"].items() >= {"isRequired": True, "isSecret": True}.items()
    limit, is_open = (inputs[f"FOUNDATION_RT_SHOP__{each}"] for each in ("LIMIT", "IS_OPEN"))
    assert (limit["format"], limit["default"], is_open["default"]) == ("number", "5", "true")


@pytest.mark.rule("PKG-14")
@pytest.mark.parametrize(
    ("words", "said", "exit_code"),
    [
        (["--namespace", "io.github.ada"], "both --namespace and --url", 2),
        (["--namespace", "io/github", "--url", URL], "--namespace is a domain", 1),
        (["--namespace", "a", "--url", "http://a/mcp"], "--url is where", 1),
        (["--namespace", "a", "--url", "https://a/x.zip"], "--url is where", 1),
        ([*REGISTRY, "--description", "x" * 101], "at most 100 characters", 1),
    ],
)
def test_what_the_registry_refuses_is_an_error_first(
    project: Path, words: list[str], said: str, exit_code: int, capsys: Captured
) -> None:
    assert said in refused(capsys, *words, exit_code=exit_code)


@pytest.mark.rule("PKG-03")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            None,
            f"write requirements.txt, with a line NAME==VERSION for each package, such as {PIN}",
        ),
        ("attrs==24.2.0\n", f"add a line {PIN}"),
        (f"{PIN}\nattrs>=24\n", "line 2: write NAME==VERSION"),
        (f"{PIN}\nattrs==24.*\n", "line 2"),
        (f"-r other.txt\n{PIN}\n", "line 1"),
        (f"{PIN} --hash=sha256:00\n", "line 1"),
        ("a @ https://example.com/a.whl\n", "line 1"),
        ("x" * 70_000, "larger than 64 KiB"),
    ],
)
def test_requirements_are_pinned_or_the_error_says_how(
    project: Path, text: str | None, said: str, capsys: Captured
) -> None:
    path = Path("requirements.txt")
    path.unlink() if text is None else path.write_text(text)
    assert said in refused(capsys)


@pytest.mark.rule("PKG-03")
def test_requirements_may_have_extras_and_markers(project: Path) -> None:
    lines = ["Foundation_RT[http, cli] == 0.1", 'tzdata==2025.2 ; sys_platform == "win32"']
    Path("needs.txt").write_text("\n".join(lines))
    with package("--requirements", "needs.txt") as bundle:
        needed = tomllib.loads(bundle.read("pyproject.toml").decode())["project"]
    assert needed["dependencies"] == lines


@pytest.mark.rule("PKG-06")
def test_what_may_be_in_no_bundle_is_refused(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = project.parent / "outside.txt"
    outside.write_text("a secret")
    Path("link.txt").symlink_to(outside)
    Path("linked").mkdir()
    Path("linked/inner.txt").symlink_to(outside)
    Path("above").symlink_to(project.parent)
    for name, said in {
        "../outside.txt": "below the folder of the program",
        "above/outside.txt": "below the folder of the program",
        "link.txt": "link.txt cannot be in a bundle: it is a link",
        "linked": "is a link: put the file itself there",
        "above": "is a link",
        ".env": "its name begins with a dot",
        "data/.env": "its name begins with a dot",
        ".": "below the folder of the program",
        "absent.txt": "absent.txt cannot be in a bundle",
    }.items():
        assert said in refused(capsys, "--file", name)
    assert "data cannot be read: Is a directory" in refused(capsys, "--requirements", "data")
    assert "tools.py cannot be written: File exists" in refused(capsys, "--out", "tools.py")
    monkeypatch.setattr(contents, "MAX_FILES", 2)
    assert "at most 2 files" in refused(capsys, "--file", "data")
    monkeypatch.setattr(contents, "MAX_BYTES", len(APP))
    assert "MiB together" in refused(capsys, "--file", "secret.txt")


@pytest.mark.rule("PKG-07")
def test_module_that_the_program_imports_has_to_be_named(project: Path, capsys: Captured) -> None:
    Path("beside.py").write_text("")
    Path("tools.py").write_text(f"{APP}\nimport beside\n")
    assert "the program imports beside.py: add --file beside.py" in refused(capsys)
    with package("--file", "beside.py") as bundle:
        assert "server/beside.py" in bundle.namelist()


@pytest.mark.rule("PKG-01", "PKG-13")
def test_what_the_server_does_not_say_is_asked_for(project: Path, capsys: Captured) -> None:
    Path("tools.py").write_text(APP.replace('version="1.2.3"', 'version="2"'))
    assert "write one of three numbers" in refused(capsys)
    Path("tools.py").write_text(APP.partition('"""\n\nimport')[2].join(["import", ""]))
    assert "say what the server does" in refused(capsys)
    assert main(["package", "tools.py", "--description", "It."]) == 2
    assert "--author NAME" in capsys.readouterr().err
    assert main(["package", "tools"]) == 2
    assert "APP is a file here" in capsys.readouterr().err
