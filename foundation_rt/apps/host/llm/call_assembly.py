"""Calls of a model, from the parts in which servers stream them (LLM-90 to LLM-92). Pure.

Servers number, name and split the parts in different ways, and a call must never run with arguments
that the model did not write. So one place decides, for every wire, by these rules:

The candidate is the call with the id of the part, else with its index, else the last one.

| the first that holds of a part | it belongs to |
|---|---|
| it has the id of the candidate and no other index, or that has an id and it has none | the \
candidate |
| it has no name | the candidate; a new call if that is whole, and the part is a new id alone |
| its name is a piece of the candidate's, which has no arguments yet | the candidate |
| its id or index is new, or the candidate is whole | a new call |
| its name is another tool's, and the candidate has no arguments yet | a new call |
| else: servers repeat the name | the candidate |

| arguments | become |
|---|---|
| text | the end of those before it |
| an object | the whole: text beside it has to say the same |
| nothing, null, or an empty object, and then text | that text |

A call is unclear, and not read, if a part of it could belong to another one. Where the object of a
call never closes, and no part came with its id or index, calls that follow may be pieces of it, and
one without arguments its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import orjson
from attrs import define, field, frozen

from ....base.exact_json import dumps, loads
from .provider import CallPiece, MalformedPiece

MAX_CALL_CHARACTERS = 1024 * 1024
MAX_CHARACTERS = 8 * MAX_CALL_CHARACTERS
"""The most that is kept of one answer, its thoughts included."""

_MARKS = re.compile(r'["\\{}\[\]]')
_EMPTY = 8  # characters: an empty object has fewer
_PART_COST = 100
"""The characters that a part counts for, besides its own."""


@frozen(kw_only=True)
class CallFragment:
    """A part of a call, as it came; what is missing is None or "".

    Attributes:
        index: the number of the call in its answer.
        call_id: its id.
        name: the name of the tool, or a piece of it.
        arguments: an object, or a piece of its text.
        given_back: what the provider wants back with the call.
    """

    index: int | None = None
    call_id: str = ""
    name: str = ""
    arguments: Any = None
    given_back: Mapping[str, Any] | None = None


@define
class ObjectText:
    """The text of a JSON object that arrives in pieces; it knows when the object is closed.

    Attributes:
        size: in characters.
        is_whole: the object is closed.
        beginning: the first characters but for white space.
    """

    size: int = field(default=0, init=False)
    is_whole: bool = field(default=False, init=False)
    beginning: str = field(default="", init=False)
    _pieces: list[str] = field(factory=list, init=False)
    _depth: int = field(default=0, init=False)
    _in_string: bool = field(default=False, init=False)
    _is_escaped: bool = field(default=False, init=False)

    def add(self, piece: str) -> None:
        """Add a piece; beyond the limit none is kept (LLM-26)."""
        self.size += len(piece)
        if len(self.beginning) < _EMPTY:
            self.beginning = (self.beginning + piece).lstrip()[:_EMPTY]
        if self.size <= MAX_CALL_CHARACTERS:
            self._pieces.append(piece)
            self._follow(piece)

    def _follow(self, piece: str) -> None:
        start = int(self._is_escaped)
        self._is_escaped = self._is_escaped and not piece
        for mark in _MARKS.finditer(piece):
            character = mark.group()
            if mark.start() < start:
                continue
            if character == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                if character == "\\":
                    start = mark.start() + 2
                    self._is_escaped = start > len(piece)
            elif character in "{[":
                self._depth += 1
            elif character != "\\":
                self._depth -= 1
                self.is_whole = self.is_whole or self._depth == 0

    @property
    def text(self) -> str:
        """All pieces, as far as they were kept."""
        return "".join(self._pieces)


@define(eq=False)
class _Call:
    """A call that arrives."""

    call_id: str = ""
    index: int | None = None
    name: str = ""
    text: ObjectText = field(factory=ObjectText)
    object: Mapping[str, Any] | None = None
    given_back: dict[str, Any] = field(factory=dict)
    is_unclear: bool = False
    is_continued: bool = False  # by its own id or index

    @property
    def is_whole(self) -> bool:
        return self.text.is_whole or bool(self.object)

    @property
    def has_arguments(self) -> bool:
        return bool(self.text.size or self.object)

    @property
    def is_open(self) -> bool:
        return not self.text.is_whole and self.text.beginning.rstrip() not in ("", "null")

    @property
    def is_nothing(self) -> bool:
        return not (self.name or self.object or self.text.beginning)

    def take(self, arguments: Any) -> None:
        """Add a part of the arguments."""
        if arguments is None:
            return
        if not isinstance(arguments, Mapping):
            text = arguments if isinstance(arguments, str) else dumps(arguments).decode()
            if self.text.size < _EMPTY and self.text.beginning.rstrip() == "{}" and text[:1] == "{":
                self.text = ObjectText()  # an empty object stood for what now comes
            self.text.add(text)
        elif self.object and arguments and self.object != arguments:
            self.is_unclear = True
        else:
            self.object = arguments or self.object or {}

    def piece(self, *, is_cut: bool) -> CallPiece | MalformedPiece:
        """Return the call, as far as it can be read."""
        text = self.text.text
        if not self.name:
            return self._problem("has no name")
        if self.text.size > MAX_CALL_CHARACTERS:
            return self._problem(f"has arguments of more than {MAX_CALL_CHARACTERS} characters")
        if self.is_unclear or (self.object and text.strip() and not self._agree(text)):
            return self._problem("arrived in parts that do not fit together")
        if is_cut and not self.is_whole:
            return self._problem("was cut off by the limit of tokens")
        given = text if text.strip() or self.object is None else self.object
        return CallPiece(self.name, given, self.call_id, self.given_back or None)

    def _agree(self, text: str) -> bool:
        try:
            return bool(loads(text) == self.object)
        except orjson.JSONDecodeError:
            return False

    def _problem(self, what: str) -> MalformedPiece:
        whose = f"Your call of {self.name}" if self.name else "Your call"
        return MalformedPiece(f"{whose} {what}.", self.name)


@define(eq=False)
class CallAssembler:
    """Puts the calls of one answer together; see the module.

    Args:
        names: of the tools that the model may call.

    Attributes:
        size: about how much is kept, in characters.
    """

    _names: Collection[str]
    size: int = field(default=0, init=False)
    _calls: list[_Call] = field(factory=list, init=False)
    _by_id: dict[str, _Call] = field(factory=dict, init=False)
    _by_index: dict[int | None, _Call] = field(factory=dict, init=False)

    def add(self, part: CallFragment) -> None:
        """Add a part of a call."""
        call = self._call_of(part)
        call.call_id = call.call_id or part.call_id
        if part.call_id:
            self._by_id[part.call_id] = call
        if part.index is not None:
            self._by_index[part.index] = call
        self._name(call, part.name)
        call.take(part.arguments)
        call.given_back.update(part.given_back or {})
        self.size += _PART_COST + _characters(part)

    def pieces(self, *, is_cut: bool) -> list[CallPiece | MalformedPiece]:
        """Return the calls, in the order in which they began.

        Args:
            is_cut: the limit of tokens has ended the answer.
        """
        calls = [call for call in self._calls if not call.is_nothing]
        loose = [at for at, call in enumerate(calls) if call.is_open and not call.is_continued]
        for at, call in enumerate(calls) if loose else ():
            call.is_unclear |= at > loose[0] or not call.has_arguments
        return [call.piece(is_cut=is_cut and call is calls[-1]) for call in calls]

    def _call_of(self, part: CallFragment) -> _Call:
        """Return the call of a part, by the first table."""
        known = self._by_id.get(part.call_id) or self._by_index.get(part.index)
        last = self._calls[-1] if self._calls else None
        candidate = known or last
        if candidate is None or self._begins(part, candidate, is_known=known is not None):
            self._calls.append(_Call(part.call_id, part.index))
            return self._calls[-1]
        if known is not None:
            known.is_continued = True
        elif part.arguments and not part.name:
            others = [each for each in self._calls if each.is_open and each is not candidate]
            for each in (candidate, *others) if others else ():
                each.is_unclear = True
        return candidate

    def _begins(self, part: CallFragment, candidate: _Call, *, is_known: bool) -> bool:
        """Tell whether a part begins a call."""
        has_id = bool(part.call_id)
        is_same = part.call_id == candidate.call_id and part.index in (None, candidate.index)
        if candidate.call_id and (is_same or not has_id):
            return False
        if not part.name:
            return not is_known and candidate.is_whole and has_id and not part.arguments
        if self._is_piece(part.name, candidate):
            return False
        is_new = not is_known and (has_id or part.index is not None)
        if is_new or candidate.is_whole:
            return True
        is_other = part.name != candidate.name and part.name in self._names
        return is_other and not candidate.has_arguments

    def _is_piece(self, name: str, call: _Call) -> bool:
        """Tell whether a name is a further piece of the name of a call."""
        if name in self._names:
            return False
        if self._is_known(call.name + name):
            return call.name not in self._names or not call.has_arguments
        return call.name not in (*self._names, name) and not call.has_arguments

    def _is_known(self, beginning: str) -> bool:
        return any(each.startswith(beginning) for each in self._names)

    def _name(self, call: _Call, name: str) -> None:
        """Give a call its name, or a piece of it."""
        if not call.name or (name and self._is_piece(name, call)):
            call.name += name
        elif name and (name != call.name or self._is_known(name + name)):
            call.is_unclear = True


def _characters(part: CallFragment) -> int:
    own = len(part.call_id) + len(part.name)
    if isinstance(part.arguments, str):
        return own + len(part.arguments)
    return own + len(str(part.arguments or "")) + len(str(part.given_back or ""))
