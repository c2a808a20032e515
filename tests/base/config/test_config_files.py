"""The content of configuration files, and refusals of unusable ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.base.config.loading import UnusableFileError, read_file

CONTENT = {"server": {"name": "Ærlig"}, "tools": {"admin_policy": {"mode": "deny_all"}}}
TOML = 'server.name = "Ærlig"\n[tools.admin_policy]\nmode = "deny_all"\n'
JSON = json.dumps(CONTENT, ensure_ascii=False)


def refusal(path: Path, content: bytes | None = None) -> str:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnusableFileError) as error:
        read_file(path)
    return str(error.value)


@pytest.mark.rule("CONF-12")
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", TOML), ("a.b.TOML", TOML), ("a.json", JSON), ("A.Json", JSON)],
)
def test_ending_of_the_name_decides_the_format(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert read_file(tmp_path / name) == CONTENT


@pytest.mark.rule("CONF-12")
@pytest.mark.parametrize("name", ["a.yaml", "toml", ".toml", "a.toml~", "a", "a.json5"])
def test_any_other_ending_is_refused(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path / name, JSON.encode()) == "a file whose name ends in .toml or .json"


@pytest.mark.rule("CONF-12")
def test_everything_may_be_left_out(tmp_path: Path) -> None:
    for name, text in (("a.toml", ""), ("b.toml", "# nothing\n"), ("c.json", "{}")):
        (tmp_path / name).write_text(text)
        assert read_file(tmp_path / name) == {}


@pytest.mark.rule("CONF-13")
def test_a_path_without_a_file(tmp_path: Path) -> None:
    assert "there is none by that name" in refusal(tmp_path / "a.toml")
    assert "there is none by that name" in refusal(tmp_path / "none" / "a.toml")


@pytest.mark.rule("CONF-13")
def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.toml").mkdir()
    assert "this is a directory" in refusal(tmp_path / "a.toml")


@pytest.mark.rule("CONF-13")
def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    loop = tmp_path / "a.toml"
    loop.symlink_to(loop)
    assert "symbolic links" in refusal(loop)
    assert "null byte" in refusal(Path("a\0.toml"))


@pytest.mark.rule("CONF-14")
@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.json", JSON)])
def test_a_byte_order_mark_is_ignored(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_file(tmp_path / name) == CONTENT


@pytest.mark.rule("CONF-14")
@pytest.mark.parametrize("ending", [".toml", ".json"])
def test_another_encoding_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    assert refusal(path, b"abc\xe6") == "text in UTF-8; byte 3 is not valid"
    assert "text in UTF-8" in refusal(path, TOML.encode("utf-16"))


@pytest.mark.rule("CONF-15")
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.toml", "[server]\nname = \n", ["valid TOML: ", "line 2, column 8"]),
        ("a.toml", "a = 1\na = 2\n", ["valid TOML: "]),
        ("a.toml", "a = " + "[" * 5000, ["valid TOML: ", "nested"]),
        ("a.toml", "a = " + "9" * 5000, ["valid TOML: ", "4300 digits"]),
        ("a.json", "", ["valid JSON: ", "line 1 column 1"]),
        ("a.json", '{"server":\n  {"name": }}', ["valid JSON: ", "line 2 column 12"]),
        ("a.json", '{"a": 1,}', ["valid JSON: ", "line 1"]),
        ("a.json", "{} // done", ["valid JSON: Extra data: line 1 column 4"]),
        ("a.json", "[" * 100_000, ["valid JSON: ", "while decoding a JSON array"]),
        ("a.json", '{"a": ' + "9" * 5000 + "}", ["valid JSON: ", "4300 digits"]),
        ("a.json", '{"a": NaN}', ["valid JSON: NaN is no JSON"]),
        ("a.json", '{"a": -Infinity}', ["valid JSON: -Infinity is no JSON"]),
        ("a.json", '{"tools": {"b": 1, "c": 2, "b": 1}}', ["the key 'b' stands twice in one"]),
    ],
)
def test_a_file_against_the_rules_of_its_format(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    reason = refusal(tmp_path / name, text.encode())
    assert all(part in reason for part in expected), reason


@pytest.mark.rule("CONF-16")
@pytest.mark.parametrize("text", ["[]", "null", "5", '"server"', "[{}]"])
def test_the_top_level_is_an_object(tmp_path: Path, text: str) -> None:
    reason = refusal(tmp_path / "a.json", text.encode())
    assert reason == "an object that has the sections as its members"


@pytest.mark.rule("CONF-14", "CONF-15", "CONF-16")
@given(content=st.binary() | st.text().map(str.encode), ending=st.sampled_from([".toml", ".json"]))
@example(content=b'"\\ud800"', ending=".json")
@example(content=b"a = 0x" + b"f" * 9000, ending=".toml")
def test_any_file_is_a_table_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    path.write_bytes(content)
    try:
        assert isinstance(read_file(path), dict)
    except UnusableFileError as error:
        assert str(error)
