"""`check --portable`: the tools that hosts refuse, and why."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import pytest

from foundation_rt.apps.host.llm.portability import MAX_TOOLS, HostFinding, findings
from foundation_rt.cli.main import main
from tests.lab.apps.signatures import derive_tool

TEXT = {"type": "string"}


def with_property(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


def found(schema: Any, name: str = "tool") -> list[HostFinding]:
    return findings([{"name": name, "inputSchema": schema}])


@pytest.mark.rule("CLI-43")
@pytest.mark.parametrize(
    ("schema", "path", "hosts"),
    [
        ({"type": "object"}, "", "OpenAI"),
        ({"properties": {}}, "", "Claude OpenAI Gemini"),
        ({**with_property(TEXT), "oneOf": [with_property(TEXT)]}, "", "Claude OpenAI"),
        ({**with_property(TEXT), "not": with_property(TEXT)}, "", "OpenAI"),
        ({"type": "object", "properties": {"filter[x]": TEXT}}, "", "Claude"),
        ({"type": "object", "properties": {"x" * 65: TEXT}}, "", "Claude"),
        (with_property({"type": ["string", "null"]}), "/properties/a", "Gemini"),
        (with_property({}), "/properties/a", "Gemini"),
        (with_property(True), "/properties/a", "Gemini"),
        (with_property({"description": "Anything."}), "/properties/a", "Gemini"),
        (with_property({"type": "array"}), "/properties/a", "OpenAI Gemini"),
        (with_property({"type": "array", "items": {}}), "/properties/a/items", "Gemini"),
        (
            with_property({"anyOf": [{"type": "array"}, TEXT]}),
            "/properties/a/anyOf/0",
            "OpenAI Gemini",
        ),
        (
            with_property({"type": "array", "items": [TEXT]}),
            "/properties/a",
            "Claude OpenAI Gemini",
        ),
        (
            with_property({"type": "integer", "minimum": 0, "exclusiveMinimum": True}),
            "/properties/a",
            "Claude",
        ),
        (with_property({"type": "integer", "enum": [1]}), "/properties/a", "Gemini"),
        (with_property({**TEXT, "properties": {}}), "/properties/a", "Gemini"),
        (with_property({"anyOf": [TEXT], "items": TEXT}), "/properties/a", "Gemini"),
        (with_property({"$ref": "#"}), "/properties/a", "Gemini"),
        (
            {
                **with_property({"$ref": "#/$defs/~1"}),
                "$defs": {"/": {"type": "array", "items": {"$ref": "#/$defs/~1"}}},
            },
            "/properties/a",
            "Gemini",
        ),
    ],
)
def test_a_refused_schema_is_named_with_its_place_and_hosts(
    schema: Any, path: str, hosts: str
) -> None:
    refused = [each for each in found(schema) if each.is_refused]
    assert (f"inputSchema#{path}", tuple(hosts.split())) in [
        (each.path, each.hosts) for each in refused
    ]
    assert all(each.advice for each in refused)


@pytest.mark.rule("CLI-43")
@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        ("get_forecast-2", []),
        ("agent/send", ["Claude", "OpenAI", "Gemini", "Kimi"]),
        ("a.b", ["Claude", "OpenAI", "Kimi"]),
        ("x" * 65, ["Claude", "OpenAI", "Gemini", "Kimi"]),
        ("2fast", ["Gemini", "Kimi"]),
    ],
)
def test_a_refused_name_is_named(name: str, hosts: list[str]) -> None:
    named = [host for each in found(with_property(TEXT), name) for host in each.hosts]
    assert named == hosts


@pytest.mark.rule("CLI-43")
def test_too_many_tools_are_a_finding() -> None:
    tools = [{"name": f"t{n}", "inputSchema": with_property(TEXT)} for n in range(129)]
    assert [each.hosts for each in findings(tools)] == [("OpenAI",)]
    assert findings(tools[:MAX_TOOLS]) == []


@pytest.mark.rule("CLI-44")
def test_what_a_host_leaves_out_is_a_note() -> None:
    [note] = found(with_property({"type": "integer", "exclusiveMinimum": 1}))
    assert (note.is_refused, note.hosts) == (False, ("Gemini",))


@dataclasses.dataclass
class Place:
    name: str
    height: float | None = None


@pytest.mark.rule("TYPED-48", "TYPED-50", "CLI-43")
def test_schemas_of_types_are_taken_by_every_host() -> None:
    def tool(
        anything: Any,
        values: list,  # type: ignore[type-arg]
        rows: list[list[Any]],
        record: dict[str, Any],
        place: Place | None,
        choice: Literal["a", "b"] | None = None,
        mixed: int | str | list[Place] = 1,
    ) -> None: ...

    assert found(derive_tool(tool).input_schema) == []


@pytest.mark.rule("CLI-43")
@pytest.mark.parametrize("schema", [{"items": [[]], "$ref": 5}, {"properties": []}, {"enum": None}])
def test_a_schema_that_is_none_is_read_as_well(schema: Any) -> None:
    assert found(schema)


@pytest.mark.rule("CLI-43", "REG-11")
def test_one_setting_mends_the_names_of_the_agent_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "app.py"
    app.write_text("from foundation_rt import Server\nserver = Server()\nserver.agents\n")
    assert main(["check", "--portable", str(app)]) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    assert summary == "6 tools, 5 refusals, 0 notes"
    assert all('set tools.name_separator = "_"' in line for line in lines)
    monkeypatch.setenv("FOUNDATION_RT_TOOLS__NAME_SEPARATOR", "_")
    assert main(["check", "--portable", str(app)]) == 0


@pytest.mark.rule("CLI-43", "CLI-44")
def test_the_command_names_each_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from foundation_rt import Server\n"
        "server = Server()\n"
        "@server.tool(name='a/b')\n"
        "def tool(a: int) -> int: return a\n"
    )
    assert main(["check", "--portable", str(app)]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith("a/b, name: ")
    assert 'refused by Claude, OpenAI, Gemini, Kimi; set tools.name_separator = "_"' in line
    assert summary == "2 tools, 1 refusals, 0 notes"
    assert main(["check", str(app), "--portable", "--json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["tool"], finding["refused"]) == ("a/b", True)
    app.write_text(app.read_text().replace("a/b", "a_slash_b"))
    assert main(["check", "--portable", str(app)]) == 0
