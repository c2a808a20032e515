"""Import and export of tasks."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import UsageError
from foundation_rt.apps.task_server.tasks import PRIORITIES, STATUSES, Task
from foundation_rt.apps.task_server.transfer import (
    FORMATS,
    TaskWriter,
    format_of,
    part_key,
    read_parts,
)

NEW = ("title", "description", "status", "dueDate", "project", "priority")

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
tasks = st.builds(
    Task,
    id=st.integers(1, 2**63 - 1),
    title=texts,
    description=st.none() | texts,
    status=st.sampled_from(STATUSES),
    due_date=st.none() | st.dates().map(str),
    project=texts,
    priority=st.integers(0, len(PRIORITIES) - 1),
    version=st.integers(1, 9),
    claimed_by=st.none() | texts,
    claim_expires_at=st.none() | texts,
    job_id=texts,
    created_by=texts,
    created_at=texts,
    updated_at=texts,
)


class InPieces(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._size if size is None or size < 0 else min(size, self._size))


@pytest.mark.rule("TASKS-43", "TASKS-44", "TASKS-45", "TASKS-46")
@pytest.mark.parametrize("file_format", FORMATS)
@given(st.lists(tasks, max_size=8), st.integers(1, 50), st.integers(1, 5))
def test_an_export_imports_as_the_same_tasks(
    file_format: Any, exported: list[Task], piece: int, size: int
) -> None:
    stream = io.BytesIO()
    writer = TaskWriter(stream, file_format)
    for task in exported:
        writer.write([task])
    assert writer.close() == len(exported)
    pieces = InPieces(stream.getvalue(), piece) if file_format == "json" else stream
    pieces.seek(0)
    parts = [*read_parts(pieces, file_format, size)]
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    wanted = [{name: task.to_wire()[name] for name in NEW} for task in exported]
    if file_format == "csv":
        wanted = [{k: v for k, v in each.items() if v is not None} for each in wanted]
    assert [task for part in parts for task in part] == wanted


@pytest.mark.rule("TASKS-43", "TASKS-48")
@pytest.mark.parametrize(
    ("file_format", "text", "problem"),
    [
        ("json", "", "an array, or an object"),
        ("json", "nope", "an array, or an object"),
        ("json", '{"tasks": 3}', "an array, or an object"),
        ("json", '{"tasks": [', "is not valid JSON"),
        ("json", '[{"title": "a"}, {"title', "character 17 is not valid JSON"),
        ("json", "[1 2]", "character 3 is not valid JSON"),
        ("json", "[1, ]", "character 4 is not valid JSON"),
        ("json", "[1] x", "character 4 follows"),
        ("json", "[" * 100_000, "character 1 is not valid JSON"),
        ("json", b'["\xe9"]', "not in UTF-8"),
        ("json", '[1, "\\ud800"]', "character 4 is not valid JSON"),
        ("json", "[NaN]", "character 1 is not valid JSON"),
        ("json", '{"tasks": ["\\ud800"]}', "is not valid JSON"),
        ("json", '{"tasks": ' * 100_000, "is not valid JSON"),
        ("jsonl", '{"title": "a"}\n\n{"title":\n', "line 3 is not valid JSON"),
        ("jsonl", "x" * 2**21, "line 1 is longer"),
        ("csv", "", "names its columns"),
        ("csv", "name\na\n", "names its columns"),
        ("csv", "title,title\n", "names its columns"),
        ("csv", "title,status\na\n", "line 2 has 1 fields, not 2"),
        ("csv", 'title\n"a\n', "line 2 is not valid CSV"),
        ("csv", "title\n" + "x" * 2**21, "line 2 is not valid CSV"),
        ("csv", b"title\na\n\xe9\n", "line 3 is not in UTF-8"),
        ("csv", b"title\n\xed\xa0\x80\n", "line 2 is not in UTF-8"),
        ("csv", "title;dueDate\na;b;c\n", "line 2 has 3 fields, not 2"),
        ("csv", "status\nTODO\n", "title is missing"),
    ],
)
def test_a_file_that_breaks_its_format_is_refused_with_the_place(
    file_format: Any, text: str | bytes, problem: str
) -> None:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(UsageError, match=problem):
        list(read_parts(io.BytesIO(data), file_format))


@pytest.mark.rule("TASKS-43")
@pytest.mark.parametrize(
    ("file_format", "text"),
    [("json", '[{"title": "ä"}]'), ("jsonl", '{"title": "ä"}\n'), ("csv", "title\r\nä\r\n")],
)
def test_a_byte_order_mark_is_no_part_of_a_file(file_format: Any, text: str) -> None:
    stream = io.BytesIO(b"\xef\xbb\xbf" + text.encode())
    assert [*read_parts(stream, file_format)] == [[{"title": "ä"}]]


@pytest.mark.rule("TASKS-101")
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_is_read_as_spreadsheets_write_it(separator: str) -> None:
    lines = ("title| dueDate |project||", "a, b; c|2026-11-22||||", "d||e||", "||||", "||")
    text = "\r\n".join(lines).replace("a, b; c", '"a, b; c"').replace("|", separator)
    assert [*read_parts(io.BytesIO(text.encode()), "csv")] == [
        [{"title": "a, b; c", "dueDate": "2026-11-22"}, {"title": "d", "project": "e"}]
    ]


@pytest.mark.rule("TASKS-43")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"tasks": [{"title": "a", "id": 5}, 7]}', [{"title": "a"}, 7]),
        ("\ufeff [ 1 , 2 ] ", [1, 2]),
        ("[]", []),
    ],
)
def test_both_forms_of_json_are_read(text: str, found: list[Any]) -> None:
    assert [
        task for part in read_parts(io.BytesIO(text.encode()), "json") for task in part
    ] == found


@pytest.mark.rule("TASKS-43")
def test_the_name_of_a_file_tells_its_format() -> None:
    names = ["a.json", "a.JSONL", "a.ndjson", "b.csv", "-"]
    assert [format_of(name) for name in names] == ["json", "jsonl", "jsonl", "csv", "jsonl"]
    assert format_of("a.txt", "csv") == "csv"
    for name in ("a.txt", "json", ""):
        with pytest.raises(UsageError, match="--format"):
            format_of(name)


@pytest.mark.rule("TASKS-47")
def test_the_key_of_a_part_is_made_of_its_content_and_its_number() -> None:
    keys = [part_key(b"[1]", 0), part_key(b"[1]", 1), part_key(b"[2]", 0)]
    assert len({*keys}) == 3
    assert keys[0] == part_key(b"[1]", 0)
    assert all(len(key) <= 128 for key in keys)
