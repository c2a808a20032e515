"""Routing: what the table says for every input, and that a server with its tools takes them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client import connect
from foundation_rt.client.errors import MCPError
from foundation_rt.client.tools.routing import (
    DOCUMENT_ROUTES,
    ExportRoute,
    FileRoute,
    Routed,
    Router,
    SizeTimeout,
    UrlRoute,
)
from tests.client.document_server import KIND, make_server
from tests.lab.peers.client_vectors import cases

MIB = 1024 * 1024
ROUTER = Router(DOCUMENT_ROUTES)


def route(vector: dict[str, Any]) -> Routed:
    """Where the document table sends the input of a vector."""
    if "file" in vector:
        return ROUTER.file(vector["file"], size_bytes=vector["size_bytes"])
    return ROUTER.url(vector["url"]) if "url" in vector else ROUTER.export(*vector["export"])


def refused(error: pytest.ExceptionInfo[MCPError]) -> str:
    """Check a refusal, and return the action that it suggests to a user."""
    assert error.value.code == "E204"
    assert not error.value.retryable
    assert not error.value.may_have_run
    return error.value.suggested_action


@pytest.mark.rule("ROUTE-01", "ROUTE-02", "ROUTE-03", "ROUTE-04", "ROUTE-05", "ROUTE-06")
@pytest.mark.parametrize("vector", cases("document-routes"))
def test_the_document_table(vector: dict[str, Any]) -> None:
    if "refused" in vector:
        with pytest.raises(MCPError) as caught:
            route(vector)
        assert caught.value.code == vector["refused"]
    else:
        assert route(vector) == (vector["tool"], vector["timeout"])


@pytest.mark.rule("ROUTE-05")
def test_routed_inputs_reach_the_tools_of_the_table() -> None:
    document = {"schema_name": KIND, "name": "a.pdf"}
    inputs: list[tuple[Routed, dict[str, Any], Any]] = [
        (ROUTER.file(f"b/a.{kind}", size_bytes=5), {"path": f"b/a.{kind}"}, f"a.{kind}")
        for kind in ("pdf", "DOCX", "xlsx", "Pptx")
    ]
    inputs.append(
        (ROUTER.url("https://x.example/y"), {"url": "https://x.example/y"}, "x.example/y")
    )
    exports = {
        form: (ROUTER.export(KIND, form), {"document": document})
        for form in ("markdown", "html", "json")
    }

    async def main() -> None:
        async with asyncio.timeout(20), connect(make_server()) as client:
            offered = {tool.name for tool in await client.list_tools()} - {"health"}
            assert offered == {route.tool for route in DOCUMENT_ROUTES}
            assert len(offered) == 8
            for routed, arguments, name in inputs:
                converted = await client.call(routed.tool, arguments, timeout=routed.timeout)
                assert converted.value() == {"schema_name": KIND, "name": name}
            written = {}
            for form, (routed, arguments) in exports.items():
                exported = await client.call(routed.tool, arguments, timeout=routed.timeout)
                written[form] = exported.value()
            assert written["markdown"] == "# a.pdf\n"
            assert written["html"] == "<h1>a.pdf</h1>"
            assert written["json"] == document

    asyncio.run(main())


@pytest.mark.rule("ROUTE-01")
def test_a_path_may_be_a_path() -> None:
    assert ROUTER.file(Path("/x.docx/a.pdf"), size_bytes=0).tool == "convert_pdf"


@pytest.mark.rule("ROUTE-01", "ROUTE-06")
def test_file_without_a_route_is_refused_with_the_known_extensions() -> None:
    with pytest.raises(MCPError, match=r"no tool takes files that end in '\.txt'") as caught:
        ROUTER.file("a.pdf.txt", size_bytes=0)
    assert refused(caught) == "Use one of: .docx, .pdf, .pptx, .xlsx."
    with pytest.raises(MCPError, match="no tool takes files that have no extension"):
        ROUTER.file(".pdf", size_bytes=0)


@pytest.mark.rule("ROUTE-01")
def test_the_longest_extension_counts() -> None:
    router = Router([FileRoute(".gz", "unzip", 1.0), FileRoute(".TAR.gz", "unpack", 2.0)])
    assert router.file("a.tar.gz", size_bytes=0) == Routed("unpack", 2.0)
    assert router.file("a.b.gz", size_bytes=0) == Routed("unzip", 1.0)
    assert router.file(".tar.gz", size_bytes=0) == Routed("unzip", 1.0)


@pytest.mark.rule("ROUTE-02")
@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_a_larger_file_never_has_less_time_and_none_has_more_than_the_maximum(
    one: int, other: int
) -> None:
    timeout = SizeTimeout(base=5.0, per_mib=0.5, maximum=50.0)
    less, more = sorted((one, other))
    assert 5.0 <= timeout.seconds(less) <= timeout.seconds(more) <= 50.0
    assert timeout.seconds(MIB) == 5.5


@pytest.mark.rule("ROUTE-02")
def test_no_file_has_a_negative_size() -> None:
    with pytest.raises(ValueError, match="size_bytes must not be negative: -1"):
        ROUTER.file("a.pdf", size_bytes=-1)


@pytest.mark.rule("ROUTE-03", "ROUTE-06")
def test_urls_that_no_tool_takes_are_refused_without_repeating_them() -> None:
    with pytest.raises(MCPError) as caught:
        ROUTER.url("ftp://me:secret@a.example")
    assert refused(caught) == "Use one of: http, https."
    assert str(caught.value) == "E204 no tool takes such a URL. Use one of: http, https."


@pytest.mark.rule("ROUTE-04", "ROUTE-06")
def test_exports_that_no_tool_writes_are_refused_with_those_that_are() -> None:
    with pytest.raises(MCPError, match=f"no tool exports a '{KIND}' as 'pdf'") as caught:
        ROUTER.export(KIND, "pdf")
    known = "DoclingDocument as html, DoclingDocument as json, DoclingDocument as markdown"
    assert refused(caught) == f"Use one of: {known}."


@pytest.mark.rule("ROUTE-06")
def test_an_empty_table_has_nothing_to_name() -> None:
    with pytest.raises(MCPError) as caught:
        Router(()).file("a.pdf", size_bytes=0)
    assert refused(caught) == "Check the name against what the server lists."


@pytest.mark.rule("ROUTE-06")
@pytest.mark.parametrize(
    "routes",
    [
        [FileRoute(".pdf", "a", 1.0), FileRoute(".PDF", "b", 1.0)],
        [UrlRoute("https", "a", 1.0), UrlRoute("HTTPS", "b", 1.0)],
        [ExportRoute("D", "html", "a", 1.0), ExportRoute("D", "html", "b", 1.0)],
    ],
)
def test_a_table_has_one_route_for_an_input(routes: list[Any]) -> None:
    with pytest.raises(ValueError, match="two routes are for the same"):
        Router(routes)


@pytest.mark.rule("ROUTE-06")
def test_an_extension_has_its_dot() -> None:
    with pytest.raises(ValueError, match="must begin with a dot"):
        Router([FileRoute("pdf", "a", 1.0)])


@pytest.mark.rule("ROUTE-01", "ROUTE-03", "ROUTE-04", "ROUTE-06")
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_routed_or_refused(text: str, other: str) -> None:
    routed: Routed | None
    for route in (
        lambda: ROUTER.file(text, size_bytes=len(other)),
        lambda: ROUTER.url(text),
        lambda: ROUTER.export(text, other),
    ):
        try:
            routed = route()
        except MCPError as error:
            assert error.code == "E204"
            assert len(error.message) < 400
        else:
            assert routed.tool in {each.tool for each in DOCUMENT_ROUTES}
