"""What a client can know of a task, and what may become of it."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.features.tasks.record import (
    TERMINAL,
    TRANSITIONS,
    TaskEvent,
    TaskRecord,
    TaskStatus,
)

START = "2024-01-01T00:00:00.000Z"
LATER = "2024-01-01T00:00:05.000Z"


def record() -> TaskRecord:
    return TaskRecord("t1", None, START, START, 60_000, 1_000)


@pytest.mark.rule("TASK-05")
@given(st.lists(st.sampled_from(TaskEvent)))
def test_transition_that_table_lacks_does_not_happen(events: list[TaskEvent]) -> None:
    task = record()
    for event in events:
        following = task.advance(event, LATER)
        listed = TRANSITIONS.get((task.status, event))
        assert (None if following is None else following.status) == listed
        if following is not None:
            assert following.updated_at == LATER
            assert following.created_at == START
            task = following


@pytest.mark.rule("TASK-05")
def test_terminal_status_has_no_transition() -> None:
    assert {status for status, _ in TRANSITIONS} == set(TaskStatus) - TERMINAL
    assert set(TRANSITIONS.values()) == set(TaskStatus)


@pytest.mark.rule("TASK-17")
def test_handle_has_members_of_every_status() -> None:
    assert record().handle() == {
        "taskId": "t1",
        "status": "working",
        "createdAt": START,
        "lastUpdatedAt": START,
        "ttlMs": 60_000,
        "pollIntervalMs": 1_000,
    }


@pytest.mark.rule("TASK-06")
@pytest.mark.parametrize(
    ("event", "changes", "shown"),
    [
        (
            TaskEvent.ASK,
            {"input_requests": {"1": {"method": "m"}}},
            {"inputRequests": {"1": {"method": "m"}}},
        ),
        (TaskEvent.COMPLETE, {"outcome": b'{"content":[]}'}, {"result": {"content": []}}),
        (
            TaskEvent.FAIL,
            {"outcome": b'{"code":-32603,"message":"m"}', "message": "m"},
            {"error": {"code": -32603, "message": "m"}, "statusMessage": "m"},
        ),
        (TaskEvent.CANCEL, {}, {}),
    ],
)
def test_detailed_task_has_members_of_its_status(
    event: TaskEvent, changes: dict, shown: dict
) -> None:
    task = record().advance(event, LATER, **changes)
    assert task is not None
    wire = orjson.loads(orjson.dumps(task.detailed()))
    handle = {**record().handle(), "status": task.status.value, "lastUpdatedAt": LATER}
    assert wire == {**handle, **shown}


@pytest.mark.rule("TASK-18")
def test_requests_are_removed_when_task_works_again() -> None:
    asked = record().advance(TaskEvent.ASK, LATER, input_requests={"1": {}})
    assert asked is not None
    for event in (TaskEvent.ANSWERED, TaskEvent.COMPLETE, TaskEvent.CANCEL):
        following = asked.advance(event, LATER)
        assert following is not None
        assert following.input_requests == {}
