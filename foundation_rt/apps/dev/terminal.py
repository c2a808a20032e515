"""Readable lines of what happens, for the author at a terminal (DEV-40, DEV-41)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define

from ...client.safe_text import printable_line
from ...protocol.methods import TOOLS_CALL

_MAX_TEXT = 400
_MAX_NAMED = 12
_NOISE = ("tool call completed", "request completed", "client connected", "serving over HTTP")
"""Records that say what other lines say already."""

_OUTCOMES = {
    "ok": ("ok", "green"),
    "tool_error": ("tool error", "yellow"),
    "error": ("error", "red"),
    "input_required": ("asks", "cyan"),
    "cancelled": ("cancelled", "yellow"),
    "lost": ("no answer", "yellow"),
}
_LEVELS = {"debug": "dim", "info": "dim", "stderr": "dim", "warn": "yellow", "error": "red"}
_KINDS = {
    "tools": "tool",
    "resources": "resource",
    "resourceTemplates": "template",
    "prompts": "prompt",
    "skills": "skill",
}

Styled = tuple[str, str | None]
"""A text and its style: `red`, `green`, `yellow`, `cyan`, `bold`, `dim`."""


@define(eq=False)
class Terminal:
    """Turns events of a journal into lines.

    Args:
        write: writes one line, of styled texts.
        many: whether there are several servers, which lines then name.
    """

    _write: Callable[[list[Styled]], object]
    many: bool = False

    def take(self, kind: str, members: Mapping[str, Any]) -> None:
        """Write what an event has to say to a person."""
        if kind == "call" and members["phase"] == "end":
            self._call(members)
        elif kind == "log":
            self._log(members)
        elif kind == "restart":
            self._restart(members)

    def _call(self, members: Mapping[str, Any]) -> None:
        word, style = _OUTCOMES[members["outcome"]]
        name = members["name"] or ""
        if members["method"] != TOOLS_CALL:
            name = f"{members['method']} {name}"
        line: list[Styled] = [
            (_clock(members["at"]), "dim"),
            (f" {_text(name)}", "bold"),
            (f"  {word}", style),
            (f"  {_duration(members['durationMs'])}", None),
        ]
        if members["client"]:
            line.append((f"  {_text(members['client'])}", "dim"))
        self._write(line)
        error = members["error"]
        if error is not None and error.get("message"):
            code = f"{error['code']}: " if error.get("code") is not None else ""
            self._write([(f"         {_text(code + error['message'])}", style)])

    def _log(self, members: Mapping[str, Any]) -> None:
        if members["server"] is None and members["level"] != "error":
            return  # of the front: the page has it
        if members["message"] in _NOISE:
            return
        level = members["level"]
        fields = "".join(
            f" {name}={_value(value)}"
            for name, value in members["fields"].items()
            if name != "logger"
        )
        shown = "" if level in ("info", "stderr") else f"{level} "
        server = f"{members['server']}: " if self.many and members["server"] else ""
        indent = "         " if members["call"] else "       "
        text = _text(f"{server}{shown}{members['message']}{fields}")
        self._write([(f"{indent}{text}", _LEVELS.get(level))])

    def _restart(self, members: Mapping[str, Any]) -> None:
        at = (_clock(members["at"]), "dim")
        server = f" {_text(members['server'])}" if self.many else ""
        because = ", ".join(members["because"])
        if members["outcome"] != "running":
            needs_login = members["outcome"] == "needs login"
            self._failed(at, server, because, members["error"] or {}, needs_login=needs_login)
            return
        took = f"  {_duration(members['durationMs'])}"
        changes = _changes(members)
        if members["first"]:
            self._write([at, (f"{server} running", "green"), (took, None)])
        else:
            why = f": {_text(because)}" if because else ": it had ended by itself"
            self._write([at, (f"{server} restarted", "green"), (why, None), (took, None)])
        for sign, style, text in changes:
            self._write([(f"         {sign} {_text(text)}", style)])

    def _failed(
        self,
        at: Styled,
        server: str,
        because: str,
        error: Mapping[str, Any],
        *,
        needs_login: bool,
    ) -> None:
        why = f"  ({_text(because)})" if because else ""
        said = "needs a login" if needs_login else "cannot run"
        self._write([at, (f"{server} {said}", "red"), (why, "dim")])
        if error.get("file"):
            line = f":{error['line']}" if error.get("line") else ""
            self._write([(f"         {_text(error['file'])}{line}", "bold")])
        if error.get("source"):
            self._write([(f"         {_text(error['source'])}", None)])
        self._write([(f"         {_text(error.get('message') or 'it has not said why')}", "red")])
        way_out = "It is started again when a file changes."
        if needs_login:
            way_out = "The page has a button for it."
        self._write([(f"         {way_out}", "dim")])


def _changes(members: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return sign, style and text for each kind of change in the lists."""
    found = []
    for kind, noun in _KINDS.items():
        for change, sign, style in (
            ("added", "+", "green"),
            ("removed", "-", "red"),
            ("changed", "~", "yellow"),
        ):
            names = members[kind][change]
            if names:
                more = len(names) - _MAX_NAMED
                text = ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
                plural = noun if len(names) == 1 else f"{noun}s"
                found.append((sign, style, f"{plural} {text}"))
    return found


def _value(value: Any) -> str:
    """Return the value of a field; of an exception, its type, message and last frame."""
    if isinstance(value, dict) and isinstance(value.get("frames"), list):
        while len(inner := value.get("exceptions", [])) == 1:
            value = inner[0]
        frames = value["frames"]
        place = f" at {frames[-1]}" if frames else ""
        return f"{value.get('type')}: {value.get('message')}{place}"
    return str(value)


def _text(text: str) -> str:
    shown = printable_line(text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}..."


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at / 1000))


def _duration(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"
