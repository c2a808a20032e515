"""Records as tables, as blocks of lines, or as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.cli.render import MAX_COLUMNS, Json, render, with_tables

ROWS = [{"id": 1, "name": "Ada", "on": True}, {"id": 2, "name": "Bo", "note": "x"}]


def shown(value: Any, width: int) -> str:
    return render(with_tables([Json(value)], width))


@pytest.mark.rule("CLI-49")
def test_records_are_a_table_where_it_fits() -> None:
    table = "id  name  on    note\n1   Ada   true\n2   Bo          x\n"
    assert shown(ROWS, 80) == shown({"rows": ROWS}, 80) == table
    assert shown({"a": ROWS, "b": ROWS}, 80) == f"a  2\n{table}\nb  2\n{table}"


@pytest.mark.rule("CLI-49")
def test_records_are_blocks_of_lines_where_no_table_fits() -> None:
    blocks = "1 of 2\nid    1\nname  Ada\non    true\n\n2 of 2\nid    2\nname  Bo\nnote  x\n"
    assert shown(ROWS, 30) == blocks
    assert shown({"total": 2, "rows": ROWS}, 30) == f"total  2\n\nrows  2\n\n{blocks}"


@pytest.mark.rule("CLI-49")
@pytest.mark.parametrize(
    "value",
    [
        [{f"m{number}": 0 for number in range(MAX_COLUMNS + 1)}],
        [{"a": [1]}],
        [{"a": 1}] * 1001,
        [],
        [{}],
        {"a": {"b": 1}},
    ],
)
def test_other_values_stay_json(value: Any) -> None:
    assert shown(value, 200) == render([Json(value)])
