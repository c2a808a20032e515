"""What is stored, as lists and figures: mcp-tasks-list, mcp-tasks-summary."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from foundation_rt import ToolError
from foundation_rt.apps.task_server.queries import EXACT_TOTAL, TaskFilter, TaskPage
from foundation_rt.apps.task_server.tools.lists import CursorError, decode_cursor, encode_cursor
from foundation_rt.testing import TestClient
from tests.apps.task_server.app.servers import TASK, FileStore, stored, task_server

TITLES = ["Write docs", "Fix the door", "Buy paint", "WRITE tests", "Call Ägidius"]


async def all_pages(client: TestClient, **arguments: Any) -> list[dict[str, Any]]:
    """Return the tasks of all pages, which are fetched by cursor."""
    page = await client.call("mcp-tasks-list", **arguments)
    found: list[dict[str, Any]] = page["tasks"]
    while page["nextCursor"] is not None:
        page = await client.call("mcp-tasks-list", **arguments, cursor=page["nextCursor"])
        found += page["tasks"]
    return found


@pytest.mark.rule("TASKS-26")
async def test_pages_are_counted_from_zero() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, *({"title": title} for title in TITLES))
        pages = [await client.call("mcp-tasks-list", page=n, pageSize=2) for n in range(4)]

    assert [[task["title"] for task in page["tasks"]] for page in pages] == [
        TITLES[:2],
        TITLES[2:4],
        TITLES[4:],
        [],
    ]
    for number, page in enumerate(pages):
        assert (page["page"], page["pageSize"]) == (number, 2)
        assert (page["total"], page["totalPages"], page["truncated"]) == (5, 3, False)
    assert [page["nextCursor"] is None for page in pages] == [False, False, True, True]


@pytest.mark.rule("TASKS-26")
@pytest.mark.parametrize("sort", ["id", "-id", "dueDate", "-dueDate", "priority", "-updatedAt"])
async def test_cursor_leads_through_every_task_once(sort: str) -> None:
    async with TestClient(task_server()) as client:
        await stored(
            client,
            *({"title": title, "dueDate": None if n % 2 else f"2026-01-0{n + 1}"}
              for n, title in enumerate(TITLES)),
        )  # fmt: skip
        whole = (await client.call("mcp-tasks-list", sort=sort))["tasks"]
        paged = await all_pages(client, sort=sort, pageSize=2)
        second = await client.call("mcp-tasks-list", sort=sort, pageSize=2)
        page = await client.call("mcp-tasks-list", sort=sort, cursor=second["nextCursor"])

    assert paged == whole
    assert page["page"] is None


@pytest.mark.rule("TASKS-26", "TASKS-13")
async def test_cursor_of_another_list_is_refused() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, *({"title": title} for title in TITLES))
        cursor = (await client.call("mcp-tasks-list", pageSize=1))["nextCursor"]
        for arguments in (
            {"cursor": cursor, "status": "TODO"},
            {"cursor": cursor, "sort": "-id"},
            {"cursor": "x"},
            {"cursor": "Ä"},
            {"cursor": cursor[:-4]},
            {"cursor": base64.urlsafe_b64encode(b"[1, 2]").decode()},
        ):
            with pytest.raises(ToolError) as refused:
                await client.call_tool("mcp-tasks-list", arguments)
            assert refused.value.code == "INVALID_ARGUMENT"
            assert refused.value.details is not None
            assert refused.value.details["reason"] == "invalid_cursor"
            assert refused.value.details["errors"][0]["path"] == "/cursor"


@pytest.mark.rule("TASKS-26")
@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("id", 1),
        ("dueDate", "2026-02-30"),
        ("dueDate", 7),
        ("priority", 4),
        ("priority", True),
        ("priority", None),
        ("updatedAt", "yesterday"),
        ("updatedAt", "2026-01-01"),
        ("updatedAt", None),
    ],
)
async def test_forged_cursor_is_refused(sort: Any, key: object) -> None:
    async with TestClient(task_server()) as client:
        await stored(client, TASK, TASK)
        cursor = (await client.call("mcp-tasks-list", pageSize=1, sort=sort))["nextCursor"]
    version, fingerprint, _, number = orjson.loads(base64.urlsafe_b64decode(cursor + "=="))

    for wrong in ([version, fingerprint, key, number], [version, fingerprint, _, 2**63]):
        forged = base64.urlsafe_b64encode(orjson.dumps(wrong)).decode()
        with pytest.raises(CursorError):
            decode_cursor(forged, TaskFilter(), sort, False)


@pytest.mark.rule("TASKS-26")
async def test_cursor_is_opaque_and_short() -> None:
    store = FileStore()
    async with TestClient(task_server(store)) as client:
        await stored(client, {"title": "x" * 255, "project": "p" * 100})
        task = await store.get_task(1)
    assert task is not None

    cursor = encode_cursor(task, TaskFilter(project="p" * 100), "updatedAt", True)
    assert len(cursor) < 200
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.rule("TASKS-13", "TASKS-39")
@pytest.mark.parametrize(
    ("arguments", "reason", "path"),
    [
        ({"page": 0, "cursor": "x"}, "page_with_cursor", "/cursor"),
        ({"page": 1_001}, "page_too_deep", "/page"),
        ({"page": 100_000, "pageSize": 1_000}, "page_too_deep", "/page"),
        ({"updatedAfter": "2016-12-31T23:59:60Z"}, "no_time", "/updatedAfter"),
        ({"updatedAfter": "0001-01-01T00:00:00+14:00"}, "no_time", "/updatedAfter"),
    ],
)
async def test_argument_that_the_schema_allows_and_the_tool_does_not(
    arguments: dict[str, Any], reason: str, path: str
) -> None:
    async with TestClient(task_server()) as client:
        with pytest.raises(ToolError) as refused:
            await client.call_tool("mcp-tasks-list", arguments)

    assert refused.value.details is not None
    assert (refused.value.code, refused.value.details["reason"]) == ("INVALID_ARGUMENT", reason)
    assert [each["path"] for each in refused.value.details["errors"]] == [path]


@pytest.mark.rule("TASKS-28")
async def test_conditions_choose_tasks() -> None:
    async with TestClient(task_server()) as client:
        first = await stored(client, *({"title": title} for title in TITLES))
        second = await stored(
            client,
            {"title": "Paint it", "project": "house", "status": "DONE", "dueDate": "2026-05-05"},
        )
        await client.call("mcp-tasks-claim", worker="w", count=1)

        async def ids(**arguments: Any) -> list[int]:
            page = await client.call("mcp-tasks-list", **arguments)
            return [task["id"] for task in page["tasks"]]

        assert await ids(status="DONE") == [6]
        assert await ids(project="house") == [6]
        assert await ids(jobId=second.upper()) == [6]
        assert await ids(jobId=first) == [1, 2, 3, 4, 5]
        assert await ids(ids=[3, 99, 1.0, 3]) == [1, 3]
        assert await ids(claimedBy="w") == [6] or await ids(claimedBy="w") == [1]
        assert await ids(query="write") == [1, 4]
        assert await ids(query="  TESTS write ") == [4]
        assert await ids(query="ägidius") == [5]
        assert await ids(dueBefore="2026-05-06", dueAfter="2026-05-04") == [6]
        assert await ids(dueBefore="2026-05-05") == []
        assert await ids(updatedAfter="2020-01-01t00:00:00.123456+05:30") == [1, 2, 3, 4, 5, 6]
        assert await ids(updatedAfter="2999-01-01T00:00:00Z") == []


@pytest.mark.rule("TASKS-28")
async def test_fields_choose_the_members_of_each_task() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, TASK)
        page = await client.call("mcp-tasks-list", fields=["priority", "title"])

    assert page["tasks"] == [{"priority": "HIGH", "title": TASK["title"]}]


@pytest.mark.rule("TASKS-29")
async def test_list_ends_after_a_whole_task_when_it_grows_too_long() -> None:
    tasks = [{"title": f"{n}", "description": "\U0001f600" * 500} for n in range(40)]
    async with TestClient(task_server(max_answer_bytes=16_384)) as client:
        await stored(client, *tasks)
        page = await client.call("mcp-tasks-list")
        whole = await all_pages(client)
        short = await client.call("mcp-tasks-list", fields=["title"])

    assert page["truncated"] is True
    assert 0 < len(page["tasks"]) < 40
    assert len(orjson.dumps(page)) <= 16_384
    assert [task["title"] for task in whole] == [task["title"] for task in tasks]
    assert (short["truncated"], len(short["tasks"])) == (False, 40)


@pytest.mark.rule("TASKS-29")
async def test_one_task_is_shown_however_large_it_is() -> None:
    async with TestClient(task_server(max_answer_bytes=4096)) as client:
        await stored(client, *[{"title": "x", "description": "\x01" * 2000}] * 2)
        page = await client.call("mcp-tasks-list")

    assert (len(page["tasks"]), page["truncated"]) == (1, True)


@pytest.mark.rule("TASKS-27")
async def test_total_that_is_a_lower_bound_says_so() -> None:
    class Large(FileStore):
        async def list_tasks(self, query: Any) -> TaskPage:
            return TaskPage([], False, EXACT_TOTAL, True)

    async with TestClient(task_server(Large())) as client:
        page = await client.call("mcp-tasks-list", query="x")
    async with TestClient(task_server()) as client:
        exact = await client.call("mcp-tasks-list")

    assert (page["total"], page["totalIsLowerBound"], page["totalPages"]) == (10_000, True, 100)
    assert "totalIsLowerBound" not in exact


@pytest.mark.rule("TASKS-30")
async def test_summary_counts_every_status() -> None:
    async with TestClient(task_server()) as client:
        empty = await client.call("mcp-tasks-summary")
        await stored(
            client,
            {"title": "a", "dueDate": "2020-01-01"},
            {"title": "b", "status": "DONE", "dueDate": "2020-02-01", "project": "p"},
            {"title": "c", "dueDate": "2999-01-01"},
        )
        summary = await client.call("mcp-tasks-summary")
        one = await client.call("mcp-tasks-summary", project="p")

    zero = {"TODO": 0, "IN_PROGRESS": 0, "DONE": 0}
    assert (empty["totalCount"], empty["countByStatus"], empty["earliestDueDate"]) == (
        0,
        zero,
        None,
    )
    assert summary["countByStatus"] == {"TODO": 2, "IN_PROGRESS": 0, "DONE": 1}
    assert (summary["earliestDueDate"], summary["latestDueDate"]) == ("2020-01-01", "2999-01-01")
    assert (summary["totalCount"], summary["overdueCount"]) == (3, 1)
    assert (summary["jobsPending"], summary["jobsRunning"]) == (0, 0)
    assert summary["generatedAt"].endswith("Z")
    assert (one["totalCount"], one["overdueCount"]) == (1, 0)
