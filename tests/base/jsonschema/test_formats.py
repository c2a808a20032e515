"""Formats: valid and invalid strings by the RFCs."""

from __future__ import annotations

import pytest

from foundation_rt.base.jsonschema.formats import ENFORCED, predicate

pytestmark = pytest.mark.rule("SCHEMA-13")

FITTING = {
    "date": "2020-02-29 2000-02-29 0000-02-29 9999-12-31",
    "time": "12:00:00Z 12:00:00.123z 23:59:60Z 00:59:60+01:00 15:59:60-08:00 00:00:00-23:59",
    "date-time": "2020-02-29T00:00:00Z 1998-12-31t23:59:60z 1998-12-31T15:59:60.123-08:00",
    "duration": "P1D P4W P1Y2M3DT4H5M6S PT1M P1DT12H P1M PT0S",
    "email": "a@b te~st@example.com a@[127.0.0.1] a@[IPv6:::1] " + "x" * 64 + "@b.c",
    "hostname": "a a-b.c 1.2 " + "x" * 63 + " " + ".".join(["abcdefghi"] * 25) + ".abc",
    "ipv4": "0.0.0.0 255.255.255.255 1.20.200.249",
    "ipv6": ":: ::1 1:2:3:4:5:6:7:8 ::ffff:1.2.3.4",
    "json-pointer": "/ /a /a~0b~1 /a//b /é",
    "relative-json-pointer": "0 1/a 0# 120/a/b",
    "regex": r"^a$ \p{L} (a)\1 (?<=a+)b",
    "uri": "http://a.b/c?d#e mailto:a@b urn:x:y http://[::1]:80/ http://[v1.a]/ http: foo:///x"
    " http://user:pw@h/%20 a:b",
    "uri-reference": "//a/b /a a a:b #x ?y ./1a:b a/b:c //[::1]",
    "uuid": "2EB8AA08-aa98-11ea-b4aa-73b441d16380",
}
UNFITTING = {
    "date": "2021-02-29 1900-02-29 2020-13-01 2020-00-10 2020-01-00 2020-01-32 2020-04-31 2020-1-1"
    " 20200101 ２020-01-01 +020-01-01",
    "time": "12:00:00 12:00Z 24:00:00Z 12:60:00Z 12:00:61Z 12:00:60Z 23:59:60+01:00 12:00:00.Z"
    " 12:00:00+24:00",
    "date-time": "2020-02-30T00:00:00Z 2020-01-01T00:00:00 1998-12-31T22:59:60Z 2020-01-01",
    "duration": "P PT P1 1D P1DT P2D1Y P1W1D P0.5Y PT1H1S P１Y",
    "email": "a @b a@ .a@b a.@b a..b@c a@-b a@b. a@[300.0.0.1] a@[::1] ü@b.c " + "x" * 65 + "@b.c",
    "hostname": "-a a- a..b .a a. a_b " + "x" * 64 + " " + ".".join(["abcdefghi"] * 26),
    "ipv4": "256.1.1.1 01.2.3.4 1.2.3 1.2.3.4.5 ٣.2.3.4",
    "ipv6": "1::2::3 12345:: fe80::1%eth0 1:2:3:4:5:6:7 g:: ::1.2.3.04",
    "json-pointer": "a /~ /a~2 #/a",
    "relative-json-pointer": "01 -1 0/~ /a 0##",
    "regex": r"( [a \Z (?i)a a**",
    "uri": r"//a/b /a a http://[x]/ http://a/%zz http://a:x/ http://a/{b} 1a:b http://a#b#c"
    r" http://ü/ http://a\b",
    "uri-reference": r"1a:b \\a #a\b //[x] %zz",
    "uuid": "2eb8aa08aa9811eab4aa73b441d16380 2eb8aa08-aa98-11ea-b4aa-73b441d1638 {}",
}
"""Strings that fit a format, and strings that do not, separated by blanks."""


@pytest.mark.parametrize("name", sorted(ENFORCED))
def test_formats_follow_their_rfcs(name: str) -> None:
    fits = predicate(name)
    assert [text for text in FITTING[name].split() if not fits(text)] == []
    assert [text for text in UNFITTING[name].split() if fits(text)] == []


@pytest.mark.parametrize("name", sorted(ENFORCED - {"regex"}))
def test_white_space_is_part_of_text(name: str) -> None:
    for text in FITTING[name].split():
        may_hold_anything = name.endswith("json-pointer") and "/" in text
        assert predicate(name)(text + "\n") is may_hold_anything
        assert not predicate(name)(" " + text)


def test_quoted_local_part_may_have_spaces() -> None:
    assert predicate("email")('"joe \\"bloggs"@example.com')
    assert not predicate("email")("joe bloggs@example.com")


def test_few_formats_allow_empty_string() -> None:
    fitting = {name for name in ENFORCED if predicate(name)("")}
    assert fitting == {"json-pointer", "uri-reference", "regex"}
