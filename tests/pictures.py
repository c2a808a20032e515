"""Make the pictures of the README from running programs: `python -m tests.pictures`.

The server is the one of the README. Pages are taken in the system's Chromium, light and dark; what
a terminal shows becomes SVG, which follows the theme by itself. A model of the tests plays the one
turn of the chat.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.lab.host.process import host_process
from tests.lab.pages.chromium import chromium, watched_page
from tests.lab.programs.guides import GUIDES, README, blocks_of
from tests.lab.programs.program import home_at
from tests.lab.programs.terminal import Terminal
from tests.lab.servers.dev_front import dev_front
from tests.lab.servers.http_server import free_port

FIGURES = GUIDES / "figures"
SCHEMES = {"light": "", "dark": "-dark"}
FILES = {
    "report.csv": 48_213,
    "photo.jpg": 1_204_377,
    "notes.md": 3_902,
    "orders.sqlite": 9_437_184,
}
TASKS = """title,priority,dueDate
Write the release notes,HIGH,2027-12-04
Answer the issue about TLS,NORMAL,2027-12-02
Renew the certificate,URGENT,2027-12-01
"""
QUESTION = "What takes the most room here?"
TURN = {
    "answers": [
        [{"call": "disk:largest", "arguments": {"most": 2}}],
        ["`orders.sqlite`, with 9.4 MB. `photo.jpg` has 1.2 MB, and the rest is small."],
    ]
}


@contextmanager
def folder_of_files() -> Iterator[Path]:
    """Yield a folder with the program of the README, a file of servers and some files."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        files = folder / "work"
        files.mkdir()
        for name, size in FILES.items():
            (files / name).write_bytes(b"\n" * size)
        program = next(each.text for each in blocks_of(README) if each.language == "python")
        (folder / "tools.py").write_text(program)
        yield folder


def take(page: Page, name: str, scheme: str) -> None:
    page.screenshot(path=str(FIGURES / f"{name}{SCHEMES[scheme]}.png"))


def take_dev(browser: Browser, folder: Path) -> None:
    """Take the page of dev with a call of the tool."""
    with dev_front(folder, "tools.py") as front:
        front.wait_for_state("running")
        for scheme in SCHEMES:
            look = {"color_scheme": scheme, "viewport": {"width": 1100, "height": 690}}
            with watched_page(browser, front.page_url, **look) as watched:
                page = watched.page
                page.get_by_role("link", name="largest").click()
                details = page.get_by_role("region", name="Details")
                details.get_by_label("folder").fill("work")
                details.get_by_role("button", name="Run", exact=True).click()
                details.get_by_role("article").first.get_by_text("9437184").wait_for()
                take(page, "dev", scheme)


def take_host(browser: Browser, folder: Path) -> None:
    """Take the page of the chat host, in which a call waits for a person."""
    work = folder / "work"
    entry = {"command": "foundation-rt", "args": ["serve", str(folder / "tools.py")]}
    (work / "mcp.json").write_text(json.dumps({"mcpServers": {"disk": entry}}))
    (folder / "turn.json").write_text(json.dumps(TURN))
    model = f"script:{folder / 'turn.json'}"
    with host_process(work, "--trust", "--model", model) as host:
        for scheme in SCHEMES:
            look = {"color_scheme": scheme, "viewport": {"width": 1100, "height": 640}}
            with watched_page(browser, host.url, **look) as watched:
                page = watched.page
                page.get_by_role("button", name="1 server").wait_for()
                page.get_by_label("Message", exact=True).fill(QUESTION)
                page.keyboard.press("Enter")
                page.get_by_role("button", name="Allow once").wait_for()
                take(page, "host", scheme)


def shown(folder: Path, line: str) -> list[str]:
    """Return a command and what a terminal shows of it."""
    with Terminal(*shlex.split(line)[1:], cwd=folder, variables=home_at(folder)) as terminal:
        assert terminal.exit_code() == 0, terminal.text
        lines = [each.rpartition("\r")[2].rstrip() for each in terminal.text.strip().splitlines()]
    return [f"$ {line}", *(each for each in lines if not each.startswith(tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"))), ""]


def take_task_server(folder: Path) -> None:
    """Take an import and a list of tasks."""
    (folder / "tasks.csv").write_text(TASKS)
    fields = json.dumps(["title", "priority", "dueDate"], separators=(",", ":"))
    lines = [
        *shown(folder, "foundation-rt task-server import tasks.csv"),
        *shown(
            folder,
            "foundation-rt call 'foundation-rt task-server' mcp-tasks-list"
            f" sort=dueDate 'fields:={fields}'",
        ),
    ]
    write_terminal("task-server", lines)


def take_gateway(folder: Path) -> None:
    """Take the state of a gateway and a call through it."""
    entries = {
        "disk": {"command": "foundation-rt", "args": ["serve", "tools.py"]},
        "tasks": {"command": "foundation-rt", "args": ["task-server"]},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    address = f"127.0.0.1:{free_port()}"
    words = ("gateway", "mcp.json", "--http", address, "--no-auth")
    with Terminal(*words, cwd=folder, variables=home_at(folder)) as gateway:
        gateway.wait_for(f"http://{address}/mcp")
        url = f"http://{address}/mcp"
        call = shown(folder, f"foundation-rt call {url} disk__largest folder=work most=2")
        lines = [*shown(folder, f"foundation-rt gateway status {url}"), *call]
    lines = [each.replace(address, "127.0.0.1:8000") for each in lines]
    begun = "$ foundation-rt gateway mcp.json --http 127.0.0.1:8000 --no-auth &"
    write_terminal("gateway", [begun, "", *lines])


_STYLE = """
    text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--ink) }
    .typed { font-weight: 600 }
    svg { --ground: #ffffff; --ink: #1f2328; --edge: #d1d9e0 }
    @media (prefers-color-scheme: dark) {
      svg { --ground: #151b23; --ink: #e6edf3; --edge: #3d444d }
    }
"""
_LINE, _LETTER, _MARGIN = 19, 7.9, 18


def write_terminal(name: str, lines: Sequence[str]) -> None:
    """Write the lines of a terminal as a picture."""
    while not lines[-1]:
        lines = lines[:-1]
    width = round(max(map(len, lines)) * _LETTER) + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN - 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"'
        ' fill="var(--ground)" stroke="var(--edge)"/>',
    ]
    for number, line in enumerate(lines):
        kind = ' class="typed"' if line.startswith("$ ") else ""
        y = _MARGIN + 10 + number * _LINE
        parts.append(
            f'<text x="{_MARGIN}" y="{y}"{kind} xml:space="preserve">{escape(line)}</text>'
        )
    (FIGURES / f"{name}.svg").write_text("\n".join([*parts, "</svg>"]) + "\n", "utf-8")


def main() -> None:
    """Make every picture."""
    with chromium() as browser, folder_of_files() as folder:
        take_dev(browser, folder)
        take_host(browser, folder)
    with folder_of_files() as folder:
        take_task_server(folder)
        take_gateway(folder)


if __name__ == "__main__":
    main()
