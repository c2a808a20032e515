"""ASGI applications as APIs, called in process."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import Cookie, FastAPI, Form, Header, Request, UploadFile
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from foundation_rt import Server, ToolError
from foundation_rt.features.openapi.documents import OpenApiError
from foundation_rt.testing import TestClient

QUIET = {"logging": {"level": "error"}}


class Pet(BaseModel):
    name: str = Field(max_length=20)
    age: int | None = None
    friends: list[Pet] = []


def pets() -> tuple[FastAPI, list[str]]:
    """Return an application of FastAPI, and the events of its lifespan."""
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        events.append("started")
        yield {"owner": "Ann"}
        events.append("ended")

    app = FastAPI(title="Pets", version="2.1", lifespan=lifespan)

    @app.get("/pets/{pet_id}", operation_id="pet")
    async def pet(pet_id: int, request: Request, verbose: bool = False) -> Pet:
        """Return a pet."""
        if pet_id == 13:
            raise ValueError("a bug")
        return Pet(name=f"{request.state.owner}'s {pet_id}{' pet' * verbose}")

    @app.post("/pets", operation_id="add", status_code=201)
    async def add(pet: Pet, x_token: str = Header(), sid: str = Cookie("")) -> dict[str, Any]:
        return {"pet": pet, "token": x_token, "sid": sid}

    @app.post("/files", operation_id="upload")
    async def upload(files: list[UploadFile], one: UploadFile, note: str = Form()) -> list[Any]:
        several = [(await each.read(), each.filename) for each in files]
        return [*several, await one.read(), one.content_type, note]

    return app, events


# `from __future__ import annotations` makes names of annotations those of the module.
globals()["Request"] = Request


@pytest.mark.rule("OAPI-40", "OAPI-18", "OAPI-31")
async def test_application_of_fastapi_is_served_in_process() -> None:
    app, events = pets()
    server = Server.from_asgi(app, config=QUIET)
    assert server.load_config().server.name == "Pets"
    async with TestClient(server) as client:
        assert events == ["started"]
        found = await client.call("pet", pet_id=3, verbose=True)
        assert found == {"name": "Ann's 3 pet", "age": None, "friends": []}
        friend = {"name": "Rex", "age": 3}
        arguments = {"name": "Max", "friends": [friend], "x-token": "t", "sid": "s;1"}
        added = await client.call("add", **arguments)
        assert added["pet"]["friends"][0]["age"] == 3 and added["token"] == "t"
        assert added["sid"] == "s%3B1"  # Starlette does not decode cookies
        file = {"data": b64encode(b"\0hi").decode(), "filename": "å b.txt"}
        uploaded = await client.call(
            "upload", files=[file, file], one={"data": "", "mime_type": "image/png"}, note="é"
        )
        assert uploaded == [["\0hi", "å b.txt"]] * 2 + ["", "image/png", "é"]
        with pytest.raises(ToolError, match="answered 500"):
            await client.call("pet", pet_id=13)
        with pytest.raises(ToolError) as refused:
            await client.call("add", **{"name": "x", "x-token": "t", "age": "old"})
        assert refused.value.code == "INVALID_ARGUMENT"
    assert events == ["started", "ended"]


async def schema(request: Any) -> JSONResponse:
    paths = {"/hi": {"get": {"operationId": "hi"}}}
    return JSONResponse(
        {"openapi": "3.1.0", "info": {"title": "S", "version": "1"}, "paths": paths}
    )


async def hi(request: Any) -> JSONResponse:
    return JSONResponse({"hello": True})


@pytest.mark.rule("OAPI-40")
async def test_document_of_another_application_is_read_from_it() -> None:
    app = Starlette(routes=[Route("/openapi.json", schema), Route("/hi", hi)])
    async with TestClient(Server.from_asgi(app, config=QUIET)) as client:
        assert await client.call("hi") == {"hello": True}
    with pytest.raises(OpenApiError, match="has no document"):
        Server.from_asgi(Starlette())


@pytest.mark.rule("OAPI-40")
@pytest.mark.parametrize("how", ["raises", "returns", "failed"])
async def test_applications_end_their_lifespan_as_they_like(how: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            if how == "raises":
                raise RuntimeError("no lifespan")
            if how == "failed":
                await receive()
                await send({"type": "lifespan.startup.failed", "message": "no database"})
                await asyncio.Event().wait()
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})

    document = {"openapi": "3.1.0", "info": {}, "paths": {"/": {"get": {"operationId": "x"}}}}
    client = TestClient(Server.from_asgi(app, document=document, config=QUIET))
    if how == "failed":
        with pytest.raises(Exception, match="no database"):
            await client.__aenter__()
        return
    async with client:
        assert await client.call("x") == "fine"


def application(answer: Any) -> Server:
    """Return a server of an application of ASGI with one operation, `x`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await answer(receive, send)

    document = {"openapi": "3.1.0", "info": {}, "paths": {"/": {"get": {"operationId": "x"}}}}
    config = {**QUIET, "tools": {"max_response_bytes": 100_000}}
    return Server.from_asgi(app, document=document, config=config)


START = {"type": "http.response.start", "status": 200, "headers": []}
PIECE = {"type": "http.response.body", "body": b"x" * 10_000, "more_body": True}
LAST = {"type": "http.response.body", "body": b"fine"}


@pytest.mark.rule("OAPI-46", "OAPI-33")
async def test_response_without_an_end_is_read_to_the_limit() -> None:
    sent = ended = 0

    async def endless(receive: Any, send: Any) -> None:
        nonlocal sent, ended
        try:
            await send(START)
            while True:
                await send(PIECE)
                sent += 1
        finally:
            ended += 1

    async with TestClient(application(endless)) as client:
        with pytest.raises(ToolError, match="larger than 100000 bytes"):
            await client.call("x")
    assert (sent, ended) == (pytest.approx(11, abs=2), 1)


@pytest.mark.rule("OAPI-46")
@pytest.mark.parametrize("how", ["raises", "returns", "before"])
async def test_response_that_breaks_off_is_no_result(how: str) -> None:
    async def broken(receive: Any, send: Any) -> None:
        if how != "before":
            await send(START)
            await send(PIECE)
        if how != "returns":
            raise ValueError("a bug")

    async with TestClient(application(broken)) as client:
        words = "answered 500" if how == "before" else "the connection was lost"
        with pytest.raises(ToolError, match=words):
            await client.call("x")


@pytest.mark.rule("OAPI-46")
async def test_work_after_the_response_goes_on_and_is_waited_for() -> None:
    events: list[str] = []
    go_on = asyncio.Event()

    async def answer(receive: Any, send: Any) -> None:
        await send(START)
        await send({**PIECE, "body": b""})
        await send(LAST)
        await send(PIECE)  # too late: it is ignored
        await go_on.wait()
        events.append((await receive())["type"] + (await receive())["type"])

    async with TestClient(application(answer)) as client:
        assert await client.call("x") == "fine"
        assert events == []
        go_on.set()
    assert events == ["http.requesthttp.disconnect"]
