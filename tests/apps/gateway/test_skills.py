"""Skills of servers, as clients of a gateway get them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import orjson
import pytest

from foundation_rt.client import MCPError, connect
from tests.features.test_skills import MANIFEST, write_skill
from tests.lab.apps import skill_server
from tests.lab.apps.skill_server import entry_of, write_state
from tests.lab.servers.http_server import serve_gateway

APP = "server = Server({name!r})\nserver.skills_from({folder!r})\nserver.run()\n"


def write_server(folder: Path, name: str, *skills: str) -> dict[str, object]:
    """Write a server with skills; return its entry for a file of servers."""
    for skill in skills:
        write_skill(folder / name / skill, {"inner/a.txt": f"{name} {skill}".encode()})
    program = folder / f"{name}.py"
    text = APP.format(name=name, folder=str(folder / name))
    program.write_text(f"from foundation_rt import Server\n{text}")
    return {"command": sys.executable, "args": [str(program)]}


@pytest.mark.rule("GATE-63", "FWD-33")
async def test_skills_of_all_servers_are_one_list_with_their_digests(tmp_path: Path) -> None:
    servers = {name: write_server(tmp_path, name, *of) for name, of in SKILLS.items()}
    file = tmp_path / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": servers}))
    with serve_gateway(str(file)) as gateway:
        async with connect(gateway.url) as client:
            skills = {each.uri: each for each in await client.skills()}
            assert [*skills] == [
                "skill://mail/SKILL.md",
                "skill://pdf/SKILL.md",
                "two+skill://pdf/SKILL.md",
            ]
            for uri, server in zip(skills, ("two", "one", "two"), strict=True):
                skill = await client.skill(uri)
                assert skill == skills[uri]
                text = f"{server} {skill.name}".encode()
                assert await client.read_skill(skill, "inner/a.txt") == text
                manifest = MANIFEST.format(name=skill.name).encode()
                assert await client.read_skill(skill) == manifest
            with pytest.raises(MCPError) as unknown:
                await client.skill("skill://none/SKILL.md")
            assert unknown.value.code == "E204"


SKILLS = {"one": ("pdf",), "two": ("pdf", "mail")}


@pytest.mark.rule("GATE-63", "GATE-55", "GATE-53")
async def test_skill_that_changes_is_withheld_until_it_is_accepted(tmp_path: Path) -> None:
    write_server(tmp_path, "one", "pdf")
    program = shlex.join([sys.executable, str(tmp_path / "one.py")])
    lock = ("--lock", str(tmp_path / "mcp.lock"))
    with serve_gateway(program, *lock) as gateway:
        async with connect(gateway.url) as client:
            [before] = await client.skills()
    write_skill(tmp_path / "one" / "pdf", {"inner/a.txt": b"something else"})
    write_skill(tmp_path / "one" / "new")
    with serve_gateway(program, *lock) as gateway:
        async with connect(gateway.url) as client:
            assert await client.skills() == ()
            for uri in (before.uri, "skill://new/SKILL.md"):
                with pytest.raises(MCPError, match="is withheld"):
                    await client.skill(uri)
            with pytest.raises(MCPError, match="is withheld"):
                await client.read_skill(before, "inner/a.txt")


@pytest.mark.rule("GATE-68", "GATE-57")
async def test_files_are_read_that_no_list_of_resources_has(tmp_path: Path) -> None:
    root = "skill://pdf"
    texts = {f"{root}/SKILL.md": MANIFEST.format(name="pdf"), f"{root}/inner/a.txt": "a"}
    entry = entry_of(f"{root}/SKILL.md", texts, name="pdf", description="What it is for")
    servers = {}
    for name in ("one", "two"):
        state = tmp_path / f"{name}.json"
        write_state(state, skills=[entry], texts=texts)
        arguments = [skill_server.__file__, str(state)]
        servers[name] = {"command": sys.executable, "args": arguments}
    file = tmp_path / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": servers}))
    with serve_gateway(str(file), "--lock", str(tmp_path / "mcp.lock")) as gateway:
        async with connect(gateway.url) as client:
            for skill in await client.skills():
                assert await client.read_skill(skill) == MANIFEST.format(name="pdf").encode()
                assert await client.read_skill(skill, "inner/a.txt") == b"a"
    other = entry_of(entry["uri"], {**texts, f"{root}/b.txt": ""}, **entry["frontmatter"])
    write_state(tmp_path / "one.json", skills=[other], texts=texts)
    with serve_gateway(str(file), "--lock", str(tmp_path / "mcp.lock")) as gateway:
        async with connect(gateway.url) as client:
            [kept] = await client.skills()
            assert await client.read_skill(kept, "inner/a.txt") == b"a"
            for uri in (f"{root}/inner/a.txt", f"{root}/SKILL.md", "skill://PDF/./inner/a.txt"):
                with pytest.raises(MCPError, match="is withheld"):
                    await client.read_resource(uri)
