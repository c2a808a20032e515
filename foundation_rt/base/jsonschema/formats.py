"""The formats that are enforced, each as a predicate over strings (SCHEMA-13).

Enforcing `format` is optional in every dialect, and engines differ in their checks. Here an
advertised format is enforced, so these predicates follow the RFC of each format and serve both
engines. Any other format is not enforced, with a warning.

Expressions are compiled when a schema first needs them: all of them together cost several
milliseconds, and most servers use none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

Predicate = Callable[[str], bool]

_PLAIN: Final = r"A-Za-z0-9._~!$&'()*+,;="


def _run(others: str) -> str:
    """Return the expression of any number of plain, escaped and these other characters.

    It is possessive: a text that does not match is read once, not again from each of its ends.
    """
    one = rf"[{_PLAIN}{others}\-]*+"
    return rf"{one}(?:%[0-9A-Fa-f]{{2}}{one})*+"


_AUTHORITY: Final = rf"(?:{_run(':')}@)?(?:\[(?P<literal>[^\]]*+)\]|{_run('')})(?::[0-9]*+)?"
_ROOTED: Final = rf"//{_AUTHORITY}(?:/{_run(':@/')})?"
_PATH: Final = rf"(?!//){_run(':@/')}"
_TAIL: Final = rf"(?:\?{_run(':@/?')})?(?:#{_run(':@/?')})?"
_IP_FUTURE: Final = rf"[vV][0-9A-Fa-f]+\.[{_PLAIN}:\-]+"

_DATE: Final = r"[0-9]{4}-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME: Final = (
    r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)(?:\.[0-9]++)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<offset_hour>[01][0-9]|2[0-3]):(?P<offset_minute>[0-5][0-9]))"
)
_CLOCK: Final = r"T(?:[0-9]++H(?:[0-9]++M(?:[0-9]++S)?)?|[0-9]++M(?:[0-9]++S)?|[0-9]++S)"
_CALENDAR: Final = r"(?:[0-9]++Y(?:[0-9]++M(?:[0-9]++D)?)?|[0-9]++M(?:[0-9]++D)?|[0-9]++D)"
_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME: Final = rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL: Final = rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*")'
_MAX_EMAIL: Final = 64 + len("@") + 255  # RFC 5321 section 4.5.3.1
_POINTER: Final = "(?:/[^~]*+(?:~[01][^~]*+)*+)?"
_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_LAST_GROUPS: Final = rf"(?:{_GROUP}:{_GROUP}|{_OCTET}(?:\.{_OCTET}){{3}})"


def _ipv6_expression() -> str:
    """Return the expression of an address by RFC 3986: `::` is anywhere, or nowhere."""
    forms = [f"(?:{_GROUP}:){{6}}{_LAST_GROUPS}"]
    for before in range(8):
        head = f"(?:{_GROUP}(?::{_GROUP}){{0,{before - 1}}})?" if before else ""
        tail = f"(?:{_GROUP}:){{{5 - before}}}{_LAST_GROUPS}" if before < 6 else ""
        forms.append(f"{head}::{_GROUP if before == 6 else tail}")
    return "|".join(forms)


_EXPRESSIONS: Final = {
    "duration": f"P(?:[0-9]++W|{_CALENDAR}(?:{_CLOCK})?|{_CLOCK})",  # RFC 3339 appendix A
    "hostname": _HOSTNAME,  # RFC 1123 section 2.1
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",  # RFC 2673 section 3.2
    "ipv6": _ipv6_expression(),  # RFC 4291 section 2.2, without a zone
    "json-pointer": _POINTER,  # RFC 6901
    "relative-json-pointer": f"(?:0|[1-9][0-9]*+)(?:#|{_POINTER})",
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",  # RFC 4122
}
_URI: Final = rf"[A-Za-z][A-Za-z0-9+.\-]*+:(?:{_ROOTED}|{_PATH}){_TAIL}"  # RFC 3986
_RELATIVE: Final = rf"(?:{_ROOTED}|(?![^:/?#]*+:){_PATH}){_TAIL}"


def _fullmatch(expression: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(expression, re.DOTALL).fullmatch


def _real_day(match: re.Match[str]) -> bool:
    year, month, day = int(match[0][:4]), int(match["month"]), int(match["day"])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= lengths[month - 1]


def _real_second(match: re.Match[str]) -> bool:
    """Return whether a leap second is the last one of a day in UTC (RFC 3339 appendix D)."""
    if match["second"] != "60":
        return True
    minutes = int(match["hour"]) * 60 + int(match["minute"])
    if match["sign"]:
        offset = int(match["offset_hour"]) * 60 + int(match["offset_minute"])
        minutes += -offset if match["sign"] == "+" else offset
    return minutes % 1440 == 1439


def _date() -> Predicate:
    match = _fullmatch(_DATE)
    return lambda text: (found := match(text)) is not None and _real_day(found)


def _time() -> Predicate:
    match = _fullmatch(_TIME)
    return lambda text: (found := match(text)) is not None and _real_second(found)


def _date_time() -> Predicate:
    match = _fullmatch(f"{_DATE}[Tt]{_TIME}")
    return lambda text: (
        (found := match(text)) is not None and _real_day(found) and _real_second(found)
    )


def _email() -> Predicate:
    match = _fullmatch(rf"(?P<local>{_LOCAL})@(?:\[(?P<literal>[^\]]*)\]|{_HOSTNAME})")
    is_ipv4, is_ipv6 = predicate("ipv4"), predicate("ipv6")

    def fits(text: str) -> bool:  # RFC 5321 section 4.1.2
        if len(text) > _MAX_EMAIL:  # before it is matched: a MiB takes 0.1 s
            return False
        found = match(text)
        if found is None or len(found["local"]) > 64:
            return False
        literal = found["literal"]
        if literal is None or is_ipv4(literal):
            return True
        return literal[:5].upper() == "IPV6:" and is_ipv6(literal[5:])

    return fits


def _uri(expression: str) -> Predicate:
    match = _fullmatch(expression)
    is_future, is_ipv6 = _fullmatch(_IP_FUTURE), predicate("ipv6")

    def fits(text: str) -> bool:
        found = match(text)
        if found is None:
            return False
        literal = found["literal"]
        return literal is None or is_ipv6(literal) or is_future(literal) is not None

    return fits


def _uri_reference() -> Predicate:
    is_absolute, is_relative = predicate("uri"), _uri(_RELATIVE)
    return lambda text: is_absolute(text) or is_relative(text)


def _regex() -> Predicate:
    from .patterns import is_pattern

    return is_pattern


_BUILDERS: Final[dict[str, Callable[[], Predicate]]] = {
    "date": _date,
    "date-time": _date_time,
    "email": _email,
    "regex": _regex,
    "time": _time,
    "uri": lambda: _uri(_URI),
    "uri-reference": _uri_reference,
}

ENFORCED: Final = frozenset(_EXPRESSIONS) | frozenset(_BUILDERS)
"""The names of the formats enforced in every dialect (SCHEMA-13)."""


@cache
def predicate(name: str) -> Predicate:
    """Return the predicate of the format `name`, one of `ENFORCED`."""
    if name in _BUILDERS:
        return _BUILDERS[name]()
    match = _fullmatch(_EXPRESSIONS[name])
    return lambda text: match(text) is not None
