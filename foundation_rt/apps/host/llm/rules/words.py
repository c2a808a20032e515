"""Words of texts and of names, made comparable. Pure."""

from __future__ import annotations

import re

_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_ENDINGS = ("ings", "ing", "ed", "es", "s")

_FILLER_WORDS = """
a an the please pls kindly can could would you me my i we us our to of for and or in on at is are be
do does did it its this that these those with by from as just now then so what which how want need
like let use using call run invoke tool server some any there have has will not if into about your
"""
FILLER = frozenset(_FILLER_WORDS.split())
"""Words that say nothing of a tool."""

_CONNECTING_WORDS = "for about of that with to on in saying called named from at"
CONNECTING = frozenset(_CONNECTING_WORDS.split())
"""Words between what is done and what it is done with."""

_ALIKE = (
    "search find lookup look query seek",
    "list show display enumerate",
    "fetch retrieve read open load",
    "create add make new insert",
    "delete remove erase drop",
    "update edit change modify",
    "send post submit",
    "echo repeat say",
    "sleep wait pause",
    "time clock",
    "folder directory dir",
    "weather forecast",
    "sum add plus total",
)


def split_words(text: str) -> list[str]:
    """Return the words of a text or a name, in lower case, those of a compound name too."""
    return [part.lower() for part in _PARTS.findall(text)]


def stem(word: str) -> str:
    """Return a word without its ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


GROUPS: dict[str, frozenset[int]] = {}
for _number, _line in enumerate(_ALIKE):
    for _word in _line.split():
        GROUPS[stem(_word)] = GROUPS.get(stem(_word), frozenset()) | {_number}


def stems(text: str) -> set[str]:
    """Return the stems of the words that say something."""
    return {stem(word) for word in split_words(text) if word not in FILLER}


def are_alike(one: str, other: str) -> bool:
    """Tell whether two stems mean about the same."""
    return bool(GROUPS.get(one, frozenset()) & GROUPS.get(other, frozenset()))
