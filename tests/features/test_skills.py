"""Skills: folders that a server offers, and what a client makes of them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Principal, RegistrationError, Server, UsageError
from foundation_rt.base.skill_format import (
    MAX_BYTES,
    MAX_FILES,
    digest_of,
    read_front_matter,
)
from foundation_rt.client import Client, InvalidResponseError, MCPError, connect
from foundation_rt.client.results.skills import Skill
from foundation_rt.features.skills.folder import MAX_DEPTH, MAX_FOLDERS
from foundation_rt.protocol.content import TextContents
from tests.lab.servers.asgi import ask
from tests.lab.sizes import size

MANIFEST = "---\nname: {name}\ndescription: What it is for\n---\nDo it.\n"


def write_skill(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    written = {"SKILL.md": MANIFEST.format(name=folder.name).encode(), **(files or {})}
    for name, content in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def connected(server: Server) -> AbstractAsyncContextManager[Client]:
    return connect(server, timeout=20)


# -- folders ----------------------------------------------------------------------------------


def _remove_manifest(folder: Path) -> None:
    (folder / "SKILL.md").unlink()


def _manifest(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "SKILL.md").write_text(text, newline="")


def _file(name: str, content: bytes = b"x") -> Callable[[Path], object]:
    return lambda folder: write_skill(folder, {name: content})


def _link(target: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "link").symlink_to(target)


def _deep(folder: Path) -> None:
    folder.joinpath(*["d"] * 20).mkdir(parents=True)


def _many(folder: Path) -> None:
    write_skill(folder, {f"{n}.txt": b"" for n in range(MAX_FILES)})


@pytest.mark.rule("SKILL-01", "SKILL-03", "SKILL-13")
@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (_remove_manifest, "has no file SKILL.md"),
        (_manifest("Do it."), "has no front matter"),
        (_manifest("\ufeff---\nname: pdf\ndescription: d\n---\n"), "has no front matter"),
        (_manifest("---\nname: pdf\ndescription: d\n"), "has no front matter"),
        (_manifest("---\n" + "# long\n" * 20_000 + "---\n"), "at most 64 KiB"),
        (_manifest("---\nname: [\n---\n"), "cannot be read"),
        (_manifest("---\n- pdf\n---\n"), "no mapping"),
        (_manifest("---\nname: pdf\nname: other\ndescription: d\n---\n"), "'name' twice"),
        (_manifest("---\ndescription: d\n---\n"), "its name is None"),
        (_manifest("---\nname: PDF\ndescription: d\n---\n"), "lower-case"),
        (_manifest("---\nname: p--f\ndescription: d\n---\n"), "lower-case"),
        (_manifest("---\nname: pdf\n---\n"), "description"),
        (_manifest("---\nname: pdf\ndescription: 5\n---\n"), "description"),
        (_manifest("---\nname: other\ndescription: d\n---\n"), "the same name"),
        (_manifest("---\nname: pdf\ndescription: d\na: &a [*a]\n---\n"), "refers to what it is in"),
        (_link("SKILL.md"), "is a link"),
        (_link("/etc/passwd"), "is a link"),
        (_link(".."), "is a link"),
        (lambda folder: os.mkfifo(folder / "pipe"), "no file that can be read"),
        (_file("a\\b.txt"), "rename it"),
        (_file(os.fsdecode(b"\xff.txt")), "makes no URI"),
        (_file("large", bytes(MAX_BYTES)), "more than 16 MiB"),
        (_many, f"more than {MAX_FILES} files"),
        (_deep, "deeper than 16 levels"),
    ],
)
def test_what_is_no_skill_is_refused_with_the_reason(
    tmp_path: Path, spoil: Callable[[Path], object], problem: str
) -> None:
    folder = write_skill(tmp_path / "skills" / "pdf")
    spoil(folder)
    server = Server("skills")
    with pytest.raises(RegistrationError, match=problem) as refused:
        server.skill(folder)
    assert "pdf cannot be a skill" in str(refused.value) or "SKILL.md cannot" in str(refused.value)
    assert server.list_skills() == () and server.list_resources() == ()


@pytest.mark.rule("SKILL-13")
def test_a_folder_that_becomes_a_link_while_it_is_read_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_skill(tmp_path / "pdf", {"inner/a.txt": b"mine"})
    secrets = write_skill(tmp_path / "secrets", {"a.txt": b"secret"})
    from foundation_rt.base import folder_files as module

    def swapping(root: Path, path: Path) -> int:
        if path.name == "a.txt":
            (folder / "inner").rename(folder / "gone")
            (folder / "inner").symlink_to(secrets)
        return opened(root, path)

    opened = module.open_below
    monkeypatch.setattr(module, "open_below", swapping)
    with pytest.raises(RegistrationError, match=r"inner/a\.txt' cannot be read"):
        Server("skills").skill(folder)


@pytest.mark.rule("SKILL-01", "SKILL-04", "SKILL-12")
def test_all_skills_below_a_folder_are_offered_or_none(tmp_path: Path) -> None:
    write_skill(tmp_path / "billing" / "refunds", {"nested/SKILL.md": b"its own"})
    write_skill(tmp_path / "pdf")
    write_skill(tmp_path / ".git" / "hidden")
    write_skill(tmp_path.joinpath("deep", *("d" * (MAX_DEPTH + 1))))
    server = Server("skills")
    expected = ("skill://acme/billing/refunds/SKILL.md", "skill://acme/pdf/SKILL.md")
    assert server.skills_from(tmp_path, prefix="acme") == expected == server.list_skills()
    assert server.unregister_skill(expected[0]) and not server.unregister_skill(expected[0])
    assert server.list_skills() == expected[1:]
    with pytest.raises(RegistrationError, match="the name 'pdf' is that of skill://acme/pdf"):
        server.skills_from(tmp_path)
    assert server.list_skills() == expected[1:]
    for folder, prefix, problem in (
        (tmp_path / "missing", "", "cannot be read"),
        (tmp_path / "pdf", "", "no folder in it has a file"),
        (tmp_path / "deep", "", "no folder in it has a file"),
        (tmp_path / "billing", "a//b", "is no path of letters"),
        (tmp_path / "billing", "..", "is no path of letters"),
    ):
        with pytest.raises(RegistrationError, match=problem):
            server.skills_from(folder, prefix=prefix)


@pytest.mark.rule("SKILL-04")
def test_skill_whose_files_are_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    server = Server("skills")

    @server.resource("skill://pdf/{+file}")
    def files(file: str) -> str:
        return file

    with pytest.raises(RegistrationError, match="makes the same URIs"):
        server.skill(write_skill(tmp_path / "pdf", {"a.txt": b"a"}))
    assert server.list_resources() == () and server.list_skills() == ()


@pytest.mark.rule("MOUNT-02", "SKILL-12")
def test_skill_of_a_server_that_cannot_be_mounted_is_not_offered(tmp_path: Path) -> None:
    outer, inner = Server("outer"), Server("inner")
    inner.skill(write_skill(tmp_path / "pdf"))
    for server in (outer, inner):
        server.prompt(name="taken")(lambda: "x")
    with pytest.raises(RegistrationError, match="taken"):
        outer.mount(inner)
    assert outer.list_skills() == () and outer.list_resources() == ()


@pytest.mark.rule("SKILL-12", "SKILL-13")
def test_folder_of_too_many_folders_is_refused(tmp_path: Path) -> None:
    for number in range(MAX_FOLDERS):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(RegistrationError, match=f"has more than {MAX_FOLDERS:,} folders"):
        Server("skills").skills_from(tmp_path)


@pytest.mark.rule("SKILL-02")
async def test_first_skill_comes_before_the_start_and_later_ones_at_any_time(
    tmp_path: Path,
) -> None:
    first, second = write_skill(tmp_path / "first"), write_skill(tmp_path / "second")
    without, server = Server("without"), Server("skills")
    assert without.list_skills() == ()
    server.skill(first)
    async with connected(without) as client:
        with pytest.raises(MCPError, match="does not offer"):
            await client.skills()
        with pytest.raises(UsageError, match="add its first skill before"):
            without.skill(first)
    async with connected(server) as client:
        assert [each.name for each in await client.skills()] == ["first"]
        assert client.has_capability("resources")
        uri = server.skill(second)
        assert [each.name for each in await client.skills()] == ["first", "second"]
        server.unregister_skill(uri)
        with pytest.raises(MCPError) as gone:
            await client.skill(uri)
        assert gone.value.code == "E204"


_NAMES = st.text("abc .-_é%{}", min_size=1, max_size=6).filter(
    lambda name: not name.startswith(".") and name == name.strip()
)
_FILES = st.dictionaries(
    st.lists(_NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), max_size=6
).filter(lambda files: not any(a != b and b.startswith(f"{a}/") for a in files for b in files))


@pytest.mark.rule("SKILL-05", "SKILL-06", "SKILL-07", "SKILL-08", "SKILL-10", "CSKILL-04")
@given(files=_FILES, prefix=st.sampled_from(["", "acme", "a/b"]), mounted=st.booleans())
def test_client_gets_every_file_as_it_is(
    files: dict[str, bytes], prefix: str, mounted: bool
) -> None:
    server = Server("skills", config={"server": {"page_size": 2}})
    with tempfile.TemporaryDirectory() as name:
        folder = write_skill(Path(name, "pdf"), files)
        try:
            uri = server.skill(folder, prefix=prefix)
        except RegistrationError as refused:
            assert "is misleading" in str(refused)  # as %2e%2e is
            return
    whole = {"SKILL.md": MANIFEST.format(name="pdf").encode(), **files}
    if mounted:
        outer = Server("outer", config={"server": {"page_size": 2}})
        outer.mount(server, "m")
        server, uri = outer, uri.replace("//", "//m/")
    asyncio.run(_compare(server, uri, whole))


async def _compare(server: Server, uri: str, whole: dict[str, bytes]) -> None:
    """Compare the files of a skill with what a client gets."""
    async with connected(server) as client:
        [listed] = await client.skills()
        skill = await client.skill(uri)
        assert listed == skill == await client.skill("pdf")
        assert {path: await client.read_skill(skill, path) for path in whole} == whole
        assert skill.files is not None and len(skill.files) == len(whole)
        walked = await _walk(client, uri.removesuffix("/SKILL.md"))
        assert sorted(walked) == sorted(each.uri for each in skill.files)
        assert [each.uri for each in await client.list_resources()] == [uri]
        for file in skill.files:
            [contents] = (await client.read_resource(file.uri)).contents
            assert contents.uri == file.uri


async def _walk(client: Client, uri: str) -> list[str]:
    """Return the files below a folder, read page by page."""
    found: list[str] = []
    params: dict[str, Any] = {"uri": uri}
    while True:
        page = await client.request("resources/directory/read", params)
        for child in page["resources"]:
            is_folder = child["mimeType"] == "inode/directory"
            found += await _walk(client, child["uri"]) if is_folder else [child["uri"]]
        if "nextCursor" not in page:
            return found
        params["cursor"] = page["nextCursor"]


@pytest.mark.rule("SKILL-05")
async def test_page_of_large_entries_stays_below_the_limit_of_results(tmp_path: Path) -> None:
    server = Server("skills", config={"tools": {"max_response_bytes": 8_192}})
    for number in range(12):
        files = {f"{n}.txt": b"" for n in range(size(8, 20))}
        server.skill(write_skill(tmp_path / f"skill-{number:02}", files))
    async with connected(server) as client:
        assert len(await client.skills()) == 12
        first = await client.request("skills/list")
        assert 1 <= len(first["skills"]) < 12


@pytest.mark.rule("SKILL-06", "SKILL-07", "SKILL-08", "SKILL-11")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/list", {"cursor": 5}),
        ("skills/list", {"cursor": "nowhere"}),
        ("skills/get", {}),
        ("skills/get", {"uri": "skill://other/SKILL.md"}),
        ("skills/get", {"uri": "skill://pdf"}),
        ("resources/directory/read", {"uri": "skill://pdf/SKILL.md"}),
        ("resources/directory/read", {"uri": "skill://pdf/none"}),
        ("resources/directory/read", {"uri": "skill://pdf", "cursor": "x"}),
        ("resources/read", {"uri": "skill://pdf/none.txt"}),
        ("resources/read", {"uri": "skill://pdf/a/../SKILL.md"}),
        ("resources/read", {"uri": "skill://pdf/%2e%2e/pdf/a/b.txt"}),
    ],
)
async def test_what_names_nothing_is_invalid(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    server = Server("skills")
    server.skill(write_skill(tmp_path / "pdf", {"a/b.txt": b""}))
    async with connected(server) as client:
        with pytest.raises(MCPError) as refused:
            await client.request(method, params)
        assert refused.value.original_code == -32602


# -- who sees them ------------------------------------------------------------------------------


@pytest.mark.rule("SKILL-09")
async def test_skill_that_is_switched_off_is_gone_with_its_files(tmp_path: Path) -> None:
    server = Server("skills")
    uri = server.skill(write_skill(tmp_path / "pdf", {"a.txt": b"a"}), tags={"office"})
    async with connected(server) as client:
        skill = await client.skill("pdf")
        for switch in ({"names": (uri,), "tags": ()}, {"names": (), "tags": {"office"}}):
            server.disable(*switch["names"], tags=switch["tags"])
            assert await client.skills() == ()
            for path in ("SKILL.md", "a.txt"):
                with pytest.raises(MCPError, match="not found"):
                    await client.read_skill(skill, path)
            for method in ("skills/get", "resources/directory/read"):
                with pytest.raises(MCPError):
                    asked = uri if method == "skills/get" else uri.removesuffix("/SKILL.md")
                    await client.request(method, {"uri": asked})
            server.enable(*switch["names"], tags=switch["tags"])
            assert await client.read_skill(skill, "a.txt") == b"a"


KEY = "k" * 32
CLERK, BOSS = {"x-api-key": KEY}, {"x-api-key": f"{KEY[:-1]}b"}


@pytest.mark.rule("SKILL-09")
async def test_principals_see_and_read_what_is_theirs(tmp_path: Path) -> None:
    keys = (f"clerk:{KEY}:read", f"boss:{KEY[:-1]}b:read pay")
    server = Server("skills", config={"http": {"api_keys": keys}, "logging": {"level": "error"}})
    server.skill(write_skill(tmp_path / "open"))
    server.skill(write_skill(tmp_path / "paying", {"a.txt": b"a"}), scopes=["pay"])

    def is_boss(principal: Principal | None) -> bool:
        return principal is not None and principal.subject.endswith("boss")

    server.skill(write_skill(tmp_path / "secret", {"a.txt": b"a"}), visible=is_boss)
    app = server.asgi_app()
    await app.start()
    try:
        for key, seen in ((CLERK, {"open"}), (BOSS, {"open", "paying", "secret"})):
            listed = (await ask(app, "skills/list", {}, headers=key).finish()).json["result"]
            assert {each["frontmatter"]["name"] for each in listed["skills"]} == seen
            assert listed["cacheScope"] == "private"
            for name in ("open", "paying", "secret"):
                for method, rest in (
                    ("skills/get", "/SKILL.md"),
                    ("resources/directory/read", ""),
                    ("resources/read", "/SKILL.md"),
                    ("resources/read", "/a.txt"),
                ):
                    if name == "open" and rest == "/a.txt":
                        continue
                    params = {"uri": f"skill://{name}{rest}"}
                    answer = await ask(app, method, params, headers=key).finish()
                    assert ("result" in answer.json) is (name in seen), (name, method)
                    if name == "paying" and name not in seen:
                        assert answer.status == 403
    finally:
        app.begin_stop()
        await app.stop(5)


# -- the client's side ----------------------------------------------------------------------------

TEXT = MANIFEST.format(name="pdf")
ENTRY: dict[str, Any] = {
    "uri": "skill://pdf/SKILL.md",
    "frontmatter": {"name": "pdf", "description": "What it is for"},
    "resources": [
        {"uri": "skill://pdf/SKILL.md", "digest": digest_of(TEXT.encode()), "size": len(TEXT)},
        {"uri": "skill://pdf/a.txt", "digest": digest_of(b"a"), "size": 1},
    ],
}
A_FILE = ENTRY["resources"][1]


def with_file(**changes: Any) -> dict[str, Any]:
    return {**ENTRY, "resources": [ENTRY["resources"][0], {**A_FILE, **changes}]}


@pytest.mark.rule("CSKILL-02")
@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        (5, "without a uri"),
        ({**ENTRY, "uri": "skill://pdf/README.md"}, "ends with /SKILL.md"),
        ({**ENTRY, "uri": "skill://other/SKILL.md"}, "other than in its URI"),
        ({**ENTRY, "frontmatter": None}, "no mapping"),
        ({**ENTRY, "frontmatter": {"name": "pdf"}}, "description"),
        ({**ENTRY, "resources": None}, "neither an array"),
        ({**ENTRY, "resources": ["skill://pdf/SKILL.md"]}, "no uri, digest and size"),
        ({**ENTRY, "resources": [A_FILE]}, "not among its files"),
        ({**ENTRY, "resources": [*ENTRY["resources"], A_FILE]}, "listed twice"),
        (with_file(digest="sha256:" + "A" * 64), "no uri, digest and size"),
        (with_file(size=-1), "no uri, digest and size"),
        (with_file(size=True), "no uri, digest and size"),
        (with_file(size=MAX_BYTES), "more than 16 MiB"),
        (with_file(uri="skill://pdfs/a.txt"), "not in its folder"),
        (with_file(uri="skill://pdf/%2e%2e/x/a.txt"), "not in its folder"),
        ({**ENTRY, "resources": [A_FILE] * (MAX_FILES + 1)}, "513 files"),
    ],
)
def test_entry_that_is_not_valid_is_refused(wire: Any, problem: str) -> None:
    with pytest.raises(InvalidResponseError, match=problem):
        Skill.read(wire)


def serve_entry(entry: dict[str, Any], **contents: str) -> Server:
    """Return a server that says one thing of a skill, and has another."""
    server = Server("lying")
    folder = Path(tempfile.mkdtemp())
    uri = server.skill(write_skill(folder / "pdf", {"a.txt": b"a"}))
    found = server.features.skills.get(uri)
    assert found is not None
    found.front_matter, found.files = entry["frontmatter"], entry["resources"]
    return server


@pytest.mark.rule("CSKILL-04")
@pytest.mark.parametrize(
    ("path", "entry", "problem"),
    [
        ("a.txt", with_file(size=2), "1 bytes instead of 2"),
        ("a.txt", with_file(digest=digest_of(b"b")), "its digest is another one"),
        (
            "SKILL.md",
            {**ENTRY, "frontmatter": {"name": "pdf", "description": "Something else"}},
            "its front matter is another one",
        ),
        (
            "SKILL.md",
            {**ENTRY, "frontmatter": {**ENTRY["frontmatter"], "allowed-tools": "Bash"}},
            "its front matter is another one",
        ),
    ],
)
async def test_what_differs_from_the_entry_is_refused(
    path: str, entry: dict[str, Any], problem: str
) -> None:
    async with connected(serve_entry(entry)) as client:
        skill = await client.skill("pdf")
        with pytest.raises(InvalidResponseError, match=problem):
            await client.read_skill(skill, path)


@pytest.mark.rule("CSKILL-04")
@pytest.mark.parametrize(
    ("text", "parts", "problem"),
    [
        (TEXT, 2, "it came in 2 parts"),
        (TEXT, 0, "it came in 0 parts"),
        ("no front matter", 1, "SKILL.md"),
    ],
)
def test_file_that_is_no_skill_of_its_own_is_refused(text: str, parts: int, problem: str) -> None:
    uri = ENTRY["uri"]
    file = {"uri": uri, "digest": digest_of(text.encode()), "size": len(text)}
    skill = Skill.read({**ENTRY, "resources": [file]})
    assert skill.files is not None
    with pytest.raises(InvalidResponseError, match=problem):
        skill.checked(skill.files[0], [TextContents(uri, text)] * parts)


@pytest.mark.rule("CSKILL-01", "CSKILL-02", "CSKILL-03", "CSKILL-04")
async def test_client_reads_nothing_that_the_entry_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve_entry({**ENTRY, "resources": "dynamic"})
    twin = server.skill(write_skill(tmp_path / "twin"), prefix="x")
    bad = server.skill(write_skill(tmp_path / "bad"))
    found = server.features.skills.get(bad)
    assert found is not None
    found.files = []
    async with connected(server) as client:
        [pdf, other] = await client.skills()
        assert (pdf.files, other.uri) == (None, twin)
        assert "1 left out" in caplog.text and "not among its files" in caplog.text
        for skill, path, problem in (
            (pdf, "SKILL.md", "has no digests"),
            (other, "a.txt", "has no file 'a.txt'"),
            (other, "../bad/SKILL.md", "has no file"),
        ):
            with pytest.raises(MCPError, match=problem) as refused:
                await client.read_skill(skill, path)
            assert refused.value.code == "E204"
        for name in ("none", "skill://none/SKILL.md"):
            with pytest.raises(MCPError) as unknown:
                await client.skill(name)
            assert unknown.value.code == "E204"


@pytest.mark.rule("CSKILL-03")
async def test_name_of_two_skills_is_ambiguous(tmp_path: Path) -> None:
    outer = Server("outer")
    for prefix in ("one", "two"):
        inner = Server(prefix)
        inner.skill(write_skill(tmp_path / prefix / "pdf"))
        outer.mount(inner, prefix)
    async with connected(outer) as client:
        with pytest.raises(MCPError, match=r"skill://one/pdf/SKILL\.md, skill://two/pdf/SKILL\.md"):
            await client.skill("pdf")


@pytest.mark.rule("SKILL-03")
def test_front_matter_is_read_by_the_rules_of_json() -> None:
    text = b"--- \r\nname: pdf\r\ndescription: d\r\nv: 1.0\r\nday: 2020-01-01\r\nno: no\r\n---\r\n"
    others = {"v": 1.0, "day": "2020-01-01", "no": "no"}
    assert read_front_matter(text + b"---\n") == {"name": "pdf", "description": "d", **others}
