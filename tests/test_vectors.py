"""The vectors, replayed through the pure dispatcher and through a real process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.lab.peers.vectors import (
    COMPLETIONS,
    FOLDER,
    Step,
    Vector,
    load,
    make_performer,
    read,
    record_of,
)
from tests.lab.servers.process import ServerProcess, command, environment

APP = Path(__file__).parent / "lab" / "apps" / "vector_app.py"
SPEC = FOLDER.parent

VECTORS = load()
UNSCRIPTED = [vector for vector in VECTORS if not vector.is_scripted]

UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def canonical(values: list[dict[str, Any]]) -> list[bytes]:
    """JSON values as bytes that are equal if and only if the values and their types are."""
    return [orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in values]


# -- the files


@pytest.mark.rule("ID-03")
def test_there_are_vectors_of_every_area() -> None:
    readme = (FOLDER / "README.md").read_text()
    named = re.findall(r"^\| `([a-z-]+)\.jsonl` \|", readme, re.MULTILINE)
    assert named == list(dict.fromkeys(named))
    assert set(named) == {path.stem for path in FOLDER.glob("*.jsonl")}
    assert {vector.file for vector in VECTORS} == set(named)
    assert {vector.file for vector in UNSCRIPTED} == set(named) - {"timeouts"}


def test_every_vector_has_a_name_of_its_own_and_names_rules_that_exist() -> None:
    ids = [vector.id for vector in VECTORS]
    assert len(ids) == len(set(ids))
    rules = {
        rule
        for path in SPEC.glob("*.md")
        for rule in re.findall(r"^\*\*([A-Z]+-\d\d)\*\*", path.read_text(), re.MULTILINE)
    }
    for vector in VECTORS:
        assert vector.rules, vector.id
        assert set(vector.rules) <= rules, vector.id


def test_the_reader_takes_what_the_readme_says(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(
        '{"name":"one","rules":["X-01"],"config":{"tools":{"a":1}}}\n'
        '{"in":"{}"}\n{"out":{"a":1}}\n{"record":{"b":2}}\n{"out":{"c":3}}\n'
        '{"in":[["a",3],["b",1]]}\n'
        '{"name":"two","rules":[],"config":{}}\n'
        '{"in_base64":"AAo="}\n{"advance_ms":5}\n{"eof":true}\n'
    )
    one, two = read(path)
    assert (one.id, one.rules, one.config) == ("some: one", ["X-01"], {"tools": {"a": 1}})
    assert [step.data for step in one.steps] == [b"{}\n", b"aaab\n", b""]
    assert one.steps[0].out == [{"a": 1}, {"c": 3}]
    assert one.steps[0].records == [{"b": 2}]
    assert one.steps[-1].action == {"eof": True}
    assert not one.is_scripted
    assert [step.data for step in two.steps] == [b"\x00\n", b"", b""]
    assert two.is_scripted
    path.write_text('{"name":"x","rules":[],"config":{}}\n{"inn":"{}"}\n')
    with pytest.raises(ValueError, match=r"some.jsonl:2: there is no 'inn'"):
        read(path)


# -- through the pure dispatcher


@pytest.mark.rule("EMBED-05", "ID-03", "ID-07")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_the_pure_dispatcher_answers_as_the_vector_says(vector: Vector) -> None:
    performer = make_performer(vector.config, server=vector.server)
    for step in vector.steps:
        sent, recorded = len(performer.sent), len(performer.records())
        performer.act(step)
        where = f"{vector.file}.jsonl:{step.line}"
        out = [orjson.loads(line) for line in performer.sent[sent:]]
        assert canonical(out) == canonical(step.out), where
        assert canonical(performer.records()[recorded:]) == canonical(step.records), where
    assert performer.running == {}
    assert performer.runtime.resources.concurrent_executions == 0


# -- through a real process


def normalized(messages: list[dict[str, Any]], records: list[dict[str, Any]]) -> list[bytes]:
    """Messages and records with every UUID replaced by its number, in the order of appearance.

    Records of calls that ran beside each other may come in any order: they are sorted first, by all
    but their ids. How long something took is left out.
    """
    without_time = [
        {name: value for name, value in record.items() if name != "durationMs"}
        for record in records
    ]
    lines = canonical(messages)
    lines += sorted(canonical(without_time), key=lambda line: UUID.sub(b"", line))
    numbers: dict[bytes, bytes] = {}

    def number(found: re.Match[bytes]) -> bytes:
        return numbers.setdefault(found[0], b"uuid %d" % len(numbers))

    return [UUID.sub(number, line) for line in lines]


def settings(config: dict[str, Any]) -> dict[str, object]:
    """Return the settings of a configuration by their whole keys."""
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": each for name, each in settings(value).items()}
        else:
            flat[key] = orjson.dumps(value).decode() if value is True else value
    return flat


def talk(server: ServerProcess, steps: list[Step]) -> int:
    """Let the steps happen, each when the one before has been answered; return the exit code."""
    expected = 0
    for step in steps:
        if "eof" in step.action:
            return server.finish()
        server.write(step.data)
        expected += len(step.out)
        server.wait_for_messages(expected)
    raise AssertionError("a conversation ends with the end of the input")


@pytest.mark.rule("PROC-03", "CALL-13")
@pytest.mark.parametrize("vector", UNSCRIPTED, ids=lambda vector: vector.id)
def test_a_real_process_answers_as_the_vector_says(vector: Vector) -> None:
    words = command("serve", f"{APP}:{vector.server}")
    with ServerProcess(words, environment(settings(vector.config))) as server:
        assert talk(server, vector.steps) == 0
    assert not [line for line in server.stderr.splitlines() if line.startswith("Traceback")]
    records = [record_of(record) for record in server.records if record["message"] in COMPLETIONS]
    assert normalized(server.messages, records) == normalized(
        [message for step in vector.steps for message in step.out],
        [record for step in vector.steps for record in step.records],
    )
