"""pyright (npm), as an editor runs it, over files of this repository."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.lab.programs import node
from tests.trace import ROOT

PATIENCE = 300.0


def problems(paths: Sequence[Path], folder: Path) -> list[str]:
    """Return what pyright, strict, finds in files and folders, and in unneeded `type: ignore`.

    Args:
        paths: files and folders below the repository.
        folder: an empty one, for the configuration.

    Raises:
        RuntimeError: it checked nothing.
    """
    program = node.install(ROOT / "tests" / "interop") / "pyright" / "index.js"
    settings = {
        "include": [str(path.relative_to(ROOT)) for path in paths],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": True,
    }
    # Paths in it are relative to it.
    (folder / "pyrightconfig.json").write_bytes(orjson.dumps(settings))
    for each in {path.relative_to(ROOT).parts[0] for path in paths}:
        (folder / each).symlink_to(ROOT / each)
    done = subprocess.run(
        [node.NODE, program, "--project", folder, "--pythonpath", sys.executable, "--outputjson"],
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    try:
        report = orjson.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"pyright failed: {done.stdout}{done.stderr}") from None
    if report["summary"]["filesAnalyzed"] < len(paths):
        raise RuntimeError(f"pyright has checked nothing: {report['summary']}")
    return [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    ]


def completions(text: str, folder: Path) -> set[str]:
    """Return what pyright's language server offers at the end of a file with this text.

    Args:
        text: of the file.
        folder: an empty one, for the file and the configuration.

    Raises:
        RuntimeError: the language server ended.
    """
    program = node.install(ROOT / "tests" / "interop") / "pyright" / "langserver.index.js"
    (folder / "pyrightconfig.json").write_bytes(orjson.dumps({"extraPaths": [str(ROOT)]}))
    file = folder / "probe.py"
    file.write_text(text)
    lines = text.split("\n")
    place = {"uri": file.as_uri()}
    with subprocess.Popen(
        [node.NODE, program, "--stdio"],
        env=node.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        try:
            editor = _Editor(process)
            # Only an editor that has this capability is asked which Python there is.
            capabilities = {"workspace": {"configuration": True}}
            root = folder.as_uri()
            opened = {"processId": None, "rootUri": root, "capabilities": capabilities}
            editor.ask("initialize", opened)
            editor.tell("initialized", {})
            document = {**place, "languageId": "python", "version": 1, "text": text}
            editor.tell("textDocument/didOpen", {"textDocument": document})
            at = {"line": len(lines) - 1, "character": len(lines[-1])}
            found = editor.ask("textDocument/completion", {"textDocument": place, "position": at})
        finally:
            process.kill()
            timer.cancel()
    return {each["label"] for each in found["items"]}


class _Editor:
    """The editor's side of the Language Server Protocol."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    def ask(self, method: str, params: Any) -> Any:
        """Return the result of a request; answer those of the language server meanwhile."""
        self._send({"id": 1, "method": method, "params": params})
        while True:
            message = self._read()
            if "method" not in message:
                return message["result"]
            if "id" in message:
                items = message["params"].get("items", ())
                answers = [{"pythonPath": sys.executable} for _ in items]
                self._send({"id": message["id"], "result": answers or None})

    def tell(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def _send(self, message: Any) -> None:
        body = orjson.dumps({"jsonrpc": "2.0", **message})
        self._stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._stdin.flush()

    def _read(self) -> Any:
        length = 0
        while (line := self._stdout.readline()) != b"\r\n":
            if not line:
                raise RuntimeError("pyright's language server ended")
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return orjson.loads(self._stdout.read(length))
