"""Files and pictures of messages, and the model that answers: what is taken, kept and refused."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.web.frames import (
    MAX_ATTACHED_BYTES,
    AttachmentError,
    read_attachments,
)
from tests.lab.host.server import Hosting, Page, hosting

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def attached(name: str, data: bytes) -> dict[str, str]:
    """Return an attachment as a page sends it."""
    return {"name": name, "data": b64encode(data).decode()}


NOTES = attached("notes.md", b"Say ```hi```.")


@pytest.mark.rule("HOST-62")
@pytest.mark.parametrize(
    ("given_", "path", "expected"),
    [
        ({}, "payload.attachments", "a list"),
        ([NOTES] * 9, "payload.attachments", "at most 8"),
        ([NOTES, 1], "payload.attachments[1]", "name"),
        ([{**NOTES, "name": ""}], "payload.attachments[0]", "name"),
        ([{**NOTES, "name": "a\nb"}], "payload.attachments[0]", "name"),
        ([{**NOTES, "name": "a" * 257}], "payload.attachments[0]", "256"),
        ([{"name": "a"}], "payload.attachments[0]", "base64"),
        ([{"name": "a", "data": 1}], "payload.attachments[0]", "base64"),
        ([{"name": "a", "data": "%%%%"}], "payload.attachments[0]", "base64"),
        ([{"name": "a", "data": "é"}], "payload.attachments[0]", "base64"),
        ([attached("a.png", b"")], "payload.attachments[0]", "PNG"),
        ([attached("a.png", b"\xff\x00")], "payload.attachments[0]", "PNG"),
        ([attached("a.txt", b"a\x00b")], "payload.attachments[0]", "UTF-8"),
        ([attached("a.txt", b"a" * (MAX_ATTACHED_BYTES + 1))], "payload.attachments[0]", "bytes"),
        ([attached("a.txt", b"a" * 360_000)] * 2, "payload.attachments[1]", "bytes"),
        ([attached("not.png", PNG)], "payload.attachments", "takes none"),
    ],
    ids=range(16),
)
async def test_wrong_attachment_is_refused(given_: Any, path: str, expected: str) -> None:
    async with hosting() as one, one.page() as page:
        await page.say("read", id="m1", attachments=given_)
        error = await page.until("error", path=path, id="m1")
        assert expected in error["payload"]["message"]
        await page.turn("go on")


VALUES = st.recursive(st.none() | st.text() | st.integers() | st.just(NOTES), st.lists)


@pytest.mark.rule("HOST-62")
@given(VALUES | st.lists(st.dictionaries(st.sampled_from(["name", "data"]), VALUES)))
def test_anything_is_attached_or_refused(value: Any) -> None:
    try:
        read = read_attachments(value)
    except AttachmentError:
        return
    assert len(read.files) + len(read.pictures) == len(value)


async def with_files(one: Hosting, page: Page) -> None:
    """Say something with a picture and a text."""
    one.model.takes_pictures = True
    picture = attached("wrong-ending.txt", PNG)
    await page.say("read", id="m1", attachments=[NOTES, picture])
    await page.until("turn", state="finished")


@pytest.mark.rule("HOST-62")
async def test_model_reads_what_is_attached_and_people_see_its_name() -> None:
    async with hosting() as one, one.page() as page:
        await with_files(one, page)
        [read] = one.model.asked[-1].history
        assert read.content == "read\n\nFile notes.md:\n\n````\nSay ```hi```.\n````"
        [seen] = page.of("user")
        assert seen["payload"]["text"] == "read"
        assert seen["payload"]["files"] == [{"name": "notes.md", "bytes": 13}]
        [picture] = read.metadata["pictures"]
        assert picture["mimeType"] == "image/png"
        assert picture == seen["payload"]["pictures"][0]


@pytest.mark.rule("HOST-62")
async def test_attachments_of_another_message_go_with_a_new_one() -> None:
    async with hosting() as one, one.page() as page:
        await with_files(one, page)
        await page.say("again", id="m2", attachmentsOf="m9")
        await page.until("error", path="payload.attachmentsOf")
        await page.say("again", id="m2", attachmentsOf="m1", attachments=[NOTES] * 7)
        await page.until("error", path="payload.attachments")
        await page.say("again", id="m2", after=None, attachmentsOf="m1", attachments=[NOTES])
        await page.until("turn", state="finished")
        [read] = one.model.asked[-1].history
        assert read.content is not None and read.content.startswith("again\n\nFile notes.md:")
        assert read.content.count("File notes.md:") == 2
        assert len(read.metadata["pictures"]) == 1


@pytest.mark.rule("HOST-62")
@pytest.mark.parametrize("start", [b"", PNG], ids=["text", "picture"])
async def test_bytes_of_another_message_count(start: bytes) -> None:
    half = attached("half", start.ljust(MAX_ATTACHED_BYTES // 2, b"a"))
    async with hosting() as one, one.page() as page:
        one.model.takes_pictures = True
        await page.say("one", id="m1", attachments=[half])
        await page.until("turn", state="finished")
        more = [half, attached("more", b"a")]
        await page.say("two", id="m2", attachmentsOf="m1", attachments=more)
        error = await page.until("error", path="payload.attachments", id="m2")
        assert "bytes" in error["payload"]["message"]
        await page.say("two", id="m3", attachmentsOf="m1", attachments=[half])
        await page.until("turn", state="finished")


@pytest.mark.rule("HOST-61")
async def test_a_message_chooses_a_model_that_is_listed() -> None:
    async with hosting() as one, one.page() as page:
        one.model.models = ["small", "large", "", "a\nb", "x" * 300, None]  # type: ignore[list-item]
        status, _, body = await one.request("GET", "/api/models")
        assert (status, orjson.loads(body)) == (200, {"models": ["large", "small"]})
        one.model.models = []  # it is kept
        await page.say("hi", id="m1", model="other")
        await page.until("error", path="payload.model")
        await page.say("hi", id="m1", model="large")
        await page.until("turn", state="finished")
        assert one.model.asked[-1].options.model == "large"
        await page.turn("hi")
        assert one.model.asked[-1].options.model == ""


@pytest.mark.rule("HOST-61")
async def test_nothing_but_messages_waits_for_the_list_of_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = asyncio.Event()

    async def slow() -> list[str]:
        await listed.wait()
        return ["large"]

    async with hosting() as one, one.page() as page:
        monkeypatch.setattr(one.model, "list_models", slow)
        await page.say("one", id="m1", model="other")
        for number in range(8):
            await page.say(f"{number}", id=f"n{number}", **({"model": "large"} if number else {}))
        await page.until("error", code="TOO_MANY_TURNS", id="n7")
        await page.send("ping")
        await page.until("pong")
        listed.set()
        await page.until("error", path="payload.model", id="m1")
        for _ in range(7):
            await page.until("turn", state="finished")
        said = [each["payload"]["messageId"] for each in page.of("user")]
        assert said == [f"n{number}" for number in range(7)]


@pytest.mark.rule("HOST-61")
async def test_models_that_cannot_be_listed_are_none() -> None:
    async with hosting() as one:
        one.model.models = None  # type: ignore[assignment]
        status, _, body = await one.request("GET", "/api/models")
        assert (status, orjson.loads(body)) == (200, {"models": []})
        assert (await one.request("POST", "/api/models"))[0] == 405
