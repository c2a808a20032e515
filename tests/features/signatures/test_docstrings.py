"""Docstrings in three styles, and in none."""

from __future__ import annotations

from typing import Annotated

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.features.signatures.docstrings import parse_docstring
from tests.lab.apps.signatures import derive_tool

GOOGLE = """Forecast for a city.

    Note: args are names.

    Args:
        city: Name of the city,
            as people
              write it.

            With its country.
        days (int, optional): How many: at most 9.
        *hours: Which hours.
        ctx: The call.
            Never sent.
        unit:
            Celsius or not.
        silent:

    Returns:
        city: not a parameter.

    Example:
        forecast("Oslo")
    """

NUMPY = """Forecast for a city.

    Parameters
    ----------
    city : str
        Name of the city,
        as people write it.

        With its country.
    days, hours : int, optional
        How many.
    ctx
        The call.

    Other Parameters
    ----------------
    unit
        Celsius or not.

    Returns
    -------
    city : str
        Not a parameter.
    """

FIELDS = """Forecast for a city.

    :param city: Name of the city,
        as people write it.
    :param int days: How many: at most 9.
    :type city: str
    :keyword unit: Celsius
        or not.
    :parameter ctx: The call.
    :returns: the forecast
    :raises KeyError: no such city
    """

NAMES = ("city", "days", "hours", "unit", "silent")


@pytest.mark.rule("TYPED-14")
def test_google_style() -> None:
    assert parse_docstring(GOOGLE, NAMES) == (
        "Forecast for a city.\n\nNote: args are names.",
        {
            "city": "Name of the city, as people write it. With its country.",
            "days": "How many: at most 9.",
            "hours": "Which hours.",
            "unit": "Celsius or not.",
        },
    )


@pytest.mark.rule("TYPED-14")
def test_numpy_style() -> None:
    assert parse_docstring(NUMPY, NAMES) == (
        "Forecast for a city.",
        {
            "city": "Name of the city, as people write it. With its country.",
            "days": "How many.",
            "hours": "How many.",
            "unit": "Celsius or not.",
        },
    )


@pytest.mark.rule("TYPED-14")
def test_fields() -> None:
    assert parse_docstring(FIELDS, NAMES) == (
        "Forecast for a city.",
        {
            "city": "Name of the city, as people write it.",
            "days": "How many: at most 9.",
            "unit": "Celsius or not.",
        },
    )


@pytest.mark.rule("TYPED-14")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("Returns: one line.", "Returns: one line."),
        ("Text.\n\n:ref:`elsewhere` and\n: alone\n:\n: :", None),
        ("Text.\n\nReturns\nas text.", None),
        ("Text.\n\nReturns\n--", None),
        ("Text.\n\nReturns:\n    a thing", "Text."),
        ("Text.\n\nMore.\n    Args:\n        city: indented more", None),
        ("Args:\n    city: x", ""),
        ("Args:\n    an odd line\n    city: x", ""),
        ("Text.\n\nRaises:\nKeyError", "Text."),
    ],
)
def test_the_description_ends_at_the_first_section(text: str, description: str | None) -> None:
    assert parse_docstring(text, ())[0] == (text if description is None else description)


@pytest.mark.rule("TYPED-14")
def test_an_entry_ends_where_another_one_starts() -> None:
    text = (
        "T.\n\nArgs:\n  city: Name\n  of it (not indented).\n  note: dropped\n  days: Number\nEnd."
    )
    assert parse_docstring(text, NAMES)[1] == {
        "city": "Name of it (not indented).",
        "days": "Number",
    }


@pytest.mark.rule("TYPED-14")
@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *("Args:", "Parameters", "----", ":param city: x", "  city: x", "city", "", " "),
                *(":", "-"),
            ]
        )
        | st.text(max_size=9)
    )
)
def test_any_text_is_read(lines: list[str]) -> None:
    description, described = parse_docstring("\n".join(lines), ["city"])
    assert len(description) <= len("\n".join(lines).expandtabs())
    assert set(described) <= {"city"}


@pytest.mark.rule("TYPED-38", "TYPED-14")
def test_descriptions_in_annotated_come_first() -> None:
    @define
    class Place:
        """A place.

        Args:
            name: From the docstring.
            height: Not this.
        """

        name: str
        height: Annotated[int, "From the type."]

    def go(place: Place, speed: Annotated[int, "From the type."], far: bool) -> None:
        """Go.

        Args:
            place: Where to.
            speed: Not this.
            far: Whether it is far.
        """

    properties = derive_tool(go).input_schema["properties"]
    described = {name: schema["description"] for name, schema in properties.items()}
    assert described == {
        "place": "Where to.",
        "speed": "From the type.",
        "far": "Whether it is far.",
    }
    members = properties["place"]["properties"]
    assert members["name"]["description"] == "From the docstring."
    assert members["height"]["description"] == "From the type."
