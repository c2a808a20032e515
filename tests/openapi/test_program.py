"""Programs that are written from documents: they run, and their tools are those of the document."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from fastapi import FastAPI, UploadFile
from pydantic import BaseModel

from foundation_rt import Server
from foundation_rt.cli.apps import load_app
from foundation_rt.openapi.api import read_api
from foundation_rt.openapi.program import python_type, write_program, written
from foundation_rt.testing import TestClient
from tests.support.echo_api import EchoApi, echo_api
from tests.support.process import run
from tests.trace import ROOT


@pytest.fixture(scope="module")
def api() -> Iterator[EchoApi]:
    with echo_api() as served:
        yield served


def parameter(name: str, location: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": location, "schema": schema, **more}


def body(media_type: str, properties: Any, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [next(iter(properties))]}
    return {"required": True, "content": {media_type: {"schema": schema, **more}}}


def document(url: str) -> dict[str, Any]:
    texts = {"type": "array", "items": {"type": "string"}}
    name = {"name": {"type": "string"}, "x-age": {"type": ["integer", "null"]}}
    bars = parameter("tags", "query", texts, style="pipeDelimited", explode=False)
    return {
        "openapi": "3.1.0",
        "info": {"title": 'The "pets" of\nAnn\\', "version": "1"},
        "servers": [{"url": f"{url}/v1"}],
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "k"}}},
        "security": [{"key": []}],
        "paths": {
            "/pets/{pet-id}": {
                "get": {
                    "operationId": "pets/get",
                    "summary": 'Say """hi"""\\',
                    "description": 'A pet.\n\nArgs and "more"',
                    "parameters": [
                        parameter("pet-id", "path", {"type": "integer"}, description='An "id"'),
                        parameter("class", "query", {"enum": ["a'b", 'c"d'], "type": "string"}),
                        parameter("X-Note", "header", {"type": "string"}),
                        parameter("ctx", "cookie", {"type": "string"}),
                        bars,
                    ],
                }
            },
            "/pets": {
                "post": {"operationId": "add", "requestBody": body("application/json", name)}
            },
            "/form": {
                "put": {
                    "operationId": "import",
                    "security": [],
                    "requestBody": body(
                        "application/x-www-form-urlencoded",
                        {"ids": texts},
                        encoding={"ids": {"style": "deepObject"}},
                    ),
                }
            },
            "/files": {
                "post": {
                    "operationId": "upload",
                    "servers": [{"url": f"{url}/files"}],
                    "requestBody": body(
                        "multipart/form-data", {"file": {"type": "string", "format": "binary"}}
                    ),
                }
            },
            "/about/{part}": {"get": {"operationId": "about"}},
        },
    }


CALLS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    (
        "pets_get",
        {"pet-id": 3, "class": 'c"d', "X-Note": "n", "ctx": "c", "tags": ["a", "b"]},
        {"pet-id": "pet_id", "class": "class_", "X-Note": "X_Note", "ctx": "ctx_"},
    ),
    ("pets_get", {"pet-id": 3}, {"pet-id": "pet_id"}),
    ("add", {"name": "Rex", "x-age": 3}, {"x-age": "x_age"}),
    ("import", {"ids": ["1", "2"]}, {}),
    ("upload", {"file": {"data": "aGk=", "filename": "a.txt"}}, {}),
]


@pytest.mark.rule("OAPI-42", "OAPI-25")
async def test_written_program_has_the_same_tools_and_sends_the_same(
    api: EchoApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3")
    file, program = tmp_path / "api.json", tmp_path / "written.py"
    file.write_bytes(orjson.dumps(document(api.url)))
    ended = run("openapi", str(file), "--resource", "about", "--write", str(program))
    assert ended.returncode == 0, ended.stderr
    assert "s3" not in program.read_text()
    options: dict[str, Any] = {"routes": {"about": "resource"}}
    direct = Server.from_openapi(file, config={"logging": {"level": "error"}}, **options)
    monkeypatch.setattr(sys, "path", [*sys.path])
    server = load_app(str(program))
    server.set_defaults("logging", level="error")
    async with TestClient(direct) as ours, TestClient(server) as theirs:
        listed = [await each.list_tools() for each in (ours, theirs)]
        for one, other in zip(*listed, strict=True):
            assert one["name"] == other["name"]
            assert one.get("annotations") == other.get("annotations")
            text = " ".join(one.get("description", "").split()).replace('"""', "'''")
            assert text == " ".join(other.get("description", "").split())
            required = [len(each["inputSchema"].get("required", ())) for each in (one, other)]
            assert required[0] == required[1]
        for tool, arguments, renamed in CALLS:
            named = {renamed.get(name, name): each for name, each in arguments.items()}
            sent = await ours.call(tool, **arguments)
            assert await theirs.call_tool(tool, named) == sent
        assert await ours.read_resource("api://about/x") == await theirs.read_resource(
            "api://about/x"
        )
        templates = [await each.list_resource_templates() for each in (ours, theirs)]
        assert templates[0][0]["uriTemplate"] == templates[1][0]["uriTemplate"]


@pytest.mark.rule("OAPI-42")
def test_program_is_not_written_with_headers_or_to_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_bytes(orjson.dumps(document("http://localhost")))
    refused = run("openapi", str(file), "--write", "-", "--header", "A: s3")
    assert refused.returncode == 2 and "ApiClient" in refused.stderr
    assert run("openapi", str(file), "--write", str(tmp_path / "no" / "x.py")).returncode == 1
    printed = run("openapi", str(file), "--write", "-").stdout
    ast.parse(printed)


@pytest.mark.rule("OAPI-42")
@pytest.mark.parametrize("value", ["", "'", '"', "'\"", "\\", "\n", "å", ("a",), {"a": [1, None]}])
def test_values_are_written_as_code(value: Any) -> None:
    assert ast.literal_eval(written(value)) == value


@pytest.mark.rule("OAPI-42")
@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "int | None"),
        ({"anyOf": [{}, {"type": "integer"}]}, "Any"),
        ({"type": "array", "items": {"type": "object"}}, "list[dict[str, Any]]"),
        ({"type": "array"}, "list[Any]"),
        ({"enum": [1, 2], "type": "integer"}, "int"),
        ({"anyOf": [{"enum": ["a"]}, {"enum": ["b", "a"]}]}, 'Literal["a", "b"]'),
        (True, "Any"),
    ],
)
def test_schemas_become_annotations(schema: Any, kind: str) -> None:
    assert python_type(schema) == kind


class Item(BaseModel):
    name: str
    price: float = 1.0
    parent: Item | None = None
    kind: Literal["a, b", 'c"', "d]"] | Literal["e'"] = "d]"


def of_fastapi() -> dict[str, Any]:
    """Return the document of an application of FastAPI (3.1)."""
    app = FastAPI(title="Shop")

    @app.post("/items/{id}")
    def add(id: int, item: Item, q: list[str] | None = None) -> Item:
        raise NotImplementedError

    @app.post("/files")
    def upload(file: UploadFile) -> None: ...

    @app.get("/class/{type}")
    def get(type: str, self: str = "", import_: str = "") -> dict[str, int]:
        raise NotImplementedError

    found: dict[str, Any] = app.openapi()
    return found


def of_github() -> Any:
    """Return a part of the document of GitHub (3.0), as `@octokit/openapi` has it (MIT)."""
    return orjson.loads((Path(__file__).parent / "github_part.json").read_bytes())


def ours() -> dict[str, Any]:
    return document("http://localhost")


@pytest.mark.rule("OAPI-43")
def test_written_programs_pass_mypy_and_ruff(tmp_path: Path) -> None:
    for make in (ours, of_fastapi, of_github):
        api = read_api(make(), {"base_url": "http://localhost/v1"})
        assert not api.skipped
        (tmp_path / f"{make.__name__}.py").write_text(write_program(api))
    programs = sorted(map(str, tmp_path.glob("*.py")))
    assert len(programs) == 3
    rules = ("--select=E4,E7,E9,F,W,I,B,UP,C4,SIM,RET", "--line-length=100")
    for command in (
        ("mypy", "--strict", "--config-file=", "--no-incremental"),
        ("ruff", "check", "--isolated", "--no-cache", *rules),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", *command, *programs], capture_output=True, text=True, cwd=ROOT
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
