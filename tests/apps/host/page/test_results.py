"""Results of tools, and forms made from schemas: both know nothing of chats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page

PIXEL = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def show(modules: Page, result: Any) -> Page:
    """Show a result as all that there is."""
    modules.evaluate(
        """async (result) => {
          const { resultNodes } = await import("/results.js");
          document.body.replaceChildren(...resultNodes(result));
        }""",
        result,
    )
    return modules


def text(value: str) -> dict[str, str]:
    """Return a content block."""
    return {"type": "text", "text": value}


@pytest.mark.rule("HPAGE-12")
class TestResults:
    def test_rows_are_a_table(self, modules: Page) -> None:
        rows = [{"name": "Oslo", "degrees": 4}, {"name": "Rome", "wet": True}]
        show(modules, {"content": [text("[]")], "structuredContent": {"result": rows}})
        assert modules.locator("th").all_inner_texts() == ["name", "degrees", "wet"]
        assert modules.locator("td").all_inner_texts() == ["Oslo", "4", "", "Rome", "", "yes"]

    def test_an_object_is_shown_by_its_members(self, modules: Page) -> None:
        value = {"city": "Oslo", "tags": ["a", "b"], "sky": {"state": "grey"}}
        show(modules, {"content": [], "structuredContent": value})
        assert modules.locator("dt").all_inner_texts() == ["city", "tags", "sky", "state"]
        assert modules.locator("dd").all_inner_texts()[:2] == ["Oslo", "a, b"]

    def test_a_text_that_repeats_the_structured_part_is_left_out(self, modules: Page) -> None:
        show(
            modules,
            {
                "content": [text('{"b": 1, "a": 2}'), text("More.")],
                "structuredContent": {"a": 2, "b": 1},
            },
        )
        assert modules.locator("pre").all_inner_texts() == ["More."]
        assert modules.locator("dt").all_inner_texts() == ["a", "b"]

    def test_json_in_a_text_is_shown_as_what_it_is(self, modules: Page) -> None:
        show(modules, {"content": [text('[{"a": 1}]')]})
        assert modules.locator("td").all_inner_texts() == ["1"]

    def test_a_picture_is_shown_and_what_is_none_can_be_saved(self, modules: Page) -> None:
        blocks = [
            {"type": "image", "mimeType": "image/gif", "data": PIXEL},
            {"type": "image", "mimeType": "text/html", "data": PIXEL},
            {"type": "resource", "resource": {"uri": "file:///a/b.bin", "blob": PIXEL}},
            {"type": "resource_link", "uri": "javascript:alert(1)", "name": "bad"},
            {"type": "resource_link", "uri": "https://e.org/", "name": "good"},
        ]
        show(modules, {"content": blocks})
        picture = modules.locator("img")
        assert picture.evaluate("async (img) => (await img.decode(), img.naturalWidth)") == 1
        assert modules.locator("a[download]").evaluate_all("all => all.map((a) => a.download)") == [
            "Picture",
            "b.bin",
        ]
        assert modules.locator("a:not([download])").all_inner_texts() == ["good"]

    def test_what_is_high_is_folded(self, modules: Page) -> None:
        show(modules, {"content": [text("\n".join(map(str, range(60)))), text("short")]})
        unfold = modules.get_by_role("button", name="Show all")
        unfold.click()
        assert modules.locator(".folded").count() == 0
        modules.get_by_role("button", name="Show less").click()
        assert modules.locator(".folded").count() == 1

    def test_values_of_every_kind_are_shown(self, modules: Page) -> None:
        for result in (None, 1, "a", [1, "b"], {}, {"content": []}, {"content": [{"type": "new"}]}):
            show(modules, result)
            assert modules.locator("body").inner_text().strip() != ""


SCHEMA = {
    "type": "object",
    "required": ["name", "age", "size"],
    "properties": {
        "name": {"type": "string", "title": "Full name", "minLength": 2, "pattern": "^[A-Z]"},
        "mail": {"type": "string", "format": "email", "description": "For the receipt."},
        "page": {"type": "string", "format": "uri"},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "share": {"type": "number", "default": 0.5},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]},
        "tone": {"type": "string", "enum": ["a", "b"], "enumNames": ["Warm", "Cold"]},
        "gift": {"type": "boolean", "default": True},
        "extras": {
            "type": "array",
            "minItems": 1,
            "items": {
                "anyOf": [{"const": "r", "title": "Ribbon"}, {"const": "c", "title": "Card"}]
            },
            "default": ["c"],
        },
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "more": {"type": "object"},
    },
}


@pytest.fixture
def form(modules: Page) -> Page:
    """Show a form of the schema."""
    modules.evaluate(
        """async (schema) => {
          const { SchemaForm } = await import("/schema_form.js");
          window.form = new SchemaForm(schema);
          document.body.replaceChildren(window.form.node);
        }""",
        SCHEMA,
    )
    return modules


def read(form: Page) -> Any:
    """Return what the form holds."""
    return json.loads(form.evaluate("() => JSON.stringify(window.form.read())"))


@pytest.mark.rule("HPAGE-15")
def test_a_form_gives_values_of_the_types_of_its_schema(form: Page) -> None:
    form.get_by_label("Full name").fill("Ann")
    form.get_by_label("age (required)").fill("30")
    form.get_by_label("size").select_option("Small")
    defaults = {"share": 0.5, "gift": True, "extras": ["c"]}
    assert read(form)["value"] == {"name": "Ann", "age": 30, "size": "s", **defaults}

    form.get_by_label("mail").fill("ann@example.org")
    form.get_by_label("page").fill("https://example.org")
    form.get_by_label("share").fill("1e3")
    form.get_by_label("tone").select_option("Cold")
    form.get_by_label("gift").uncheck()
    form.get_by_label("Ribbon").check()
    form.get_by_label("day").fill("2026-11-23")
    form.get_by_label("at").fill("2026-11-23T10:30")
    form.get_by_label("more").fill('{"a": [1]}')
    assert read(form) == {
        "problems": [],
        "value": {
            "name": "Ann",
            "mail": "ann@example.org",
            "page": "https://example.org",
            "age": 30,
            "share": 1000,
            "size": "s",
            "tone": "b",
            "gift": False,
            "extras": ["r", "c"],
            "day": "2026-11-23",
            "more": {"a": [1]},
            "at": form.evaluate("new Date(2026, 10, 23, 10, 30).toISOString()"),
        },
    }


@pytest.mark.rule("HPAGE-16")
def test_each_problem_stands_at_its_field_and_the_first_gets_the_focus(form: Page) -> None:
    form.get_by_label("mail").fill("nobody")
    form.get_by_label("age (required)").fill("17.5")
    form.get_by_label("share").fill("much")
    form.get_by_label("Card").uncheck()
    form.get_by_label("more").fill("{")
    problems = {each["name"]: each["problem"] for each in read(form)["problems"]}
    assert list(problems) == ["name", "mail", "age", "share", "size", "extras", "more"]
    assert problems["name"] == "Fill this in."
    assert problems["age"] == "Write a whole number."
    name = form.get_by_label("Full name")
    assert name.evaluate("node => node === document.activeElement")
    assert name.get_attribute("aria-invalid") == "true"
    described = name.get_attribute("aria-describedby") or ""
    assert form.locator(f"#{described.split()[-1]}").inner_text() == "Fill this in."


@pytest.mark.rule("HPAGE-16")
@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("a", "Write at least 2 characters."),
        ("ann", "Write a text that matches ^[A-Z]"),
        ("Ann", None),
    ],
)
def test_a_text_is_checked_before_it_is_sent(form: Page, written: str, problem: str | None) -> None:
    form.get_by_label("Full name").fill(written)
    found = {each["name"]: each["problem"] for each in read(form)["problems"]}
    assert found.get("name") == problem


DIGITS = "[9007199254740993, 1234567890123456789012345, 1.0, 1e5, -0, 0.5]"


@pytest.mark.rule("HPAGE-71", "DEV-90")
class TestNumbers:
    def test_values_are_shown_with_their_digits(self, modules: Page) -> None:
        shown = modules.evaluate(
            """async (text) => {
              const { parseJson } = await import("/exact_numbers.js");
              const { resultNodes, jsonNode } = await import("/results.js");
              const { jsonText } = await import("/format.js");
              const value = parseJson(`{"list": ${text}, "rows": [{"a": 1.0}], "one": 2.50}`);
              const nodes = [...resultNodes({ structuredContent: value }), jsonNode(value.one)];
              document.body.replaceChildren(...nodes);
              return [jsonText(value.list, { indent: 0 }), JSON.stringify(value.list)];
            }""",
            DIGITS,
        )
        digits = DIGITS.replace(" ", "")
        assert shown == [digits, digits]
        written = modules.locator("dd").all_inner_texts()
        assert written[0] == digits[1:-1].replace(",", ", ")
        assert modules.locator("td.right").all_inner_texts() == ["1.0"]
        assert (written[2], modules.locator("pre").inner_text()) == ("2.50", "2.50")

    def test_form_keeps_the_digits_of_defaults_limits_and_what_is_written(
        self, modules: Page
    ) -> None:
        read = """async (written) => {
          const { parseJson } = await import("/exact_numbers.js");
          const { SchemaForm } = await import("/schema_form.js");
          const schema = parseJson(`{"type": "object", "required": ["c", "m"], "properties": {
            "a": {"type": "integer", "default": 9007199254740993, "maximum": 9007199254740993},
            "b": {"type": "number", "default": 1.0, "minimum": 1.0, "multipleOf": 0.5},
            "c": {"type": "number"},
            "d": {"enum": [1.0, 2.0], "default": 2.0},
            "e": {"type": "string", "minLength": 1.0, "default": "x"},
            "f": {"const": 1.50},
            "m": {"type": ["object", "array"], "default": {"n": 1.0}}
          }}`);
          const form = new SchemaForm(schema, undefined, { hasHints: true });
          document.body.replaceChildren(form.node);
          form.node.querySelectorAll("input")[2].value = written;
          const { value, problems } = form.read();
          return [JSON.stringify(value), problems.length, form.node.textContent];
        }"""
        value, problems, words = modules.evaluate(read, "1234567890123456789012345.10")
        assert problems == 0
        assert value == (
            '{"a":9007199254740993,"b":1.0,"c":1234567890123456789012345.10,"d":2.0,"e":"x",'
            '"m":{"n":1.0}}'
        )
        assert "at most 9007199254740993" in words
        assert modules.evaluate(read, "-1.2.3")[1] == 1

    def test_text_that_differs_in_a_digit_is_no_repetition(self, modules: Page) -> None:
        shown = modules.evaluate(
            """async () => {
              const { parseJson } = await import("/exact_numbers.js");
              const { resultNodes } = await import("/results.js");
              const shown = (text, value) => {
                const content = `[{"type": "text", "text": "[${text}]"}]`;
                const structured = `{"result": [${value}]}`;
                const result = `{"content": ${content}, "structuredContent": ${structured}}`;
                return resultNodes(parseJson(result)).length;
              };
              const long = ["9007199254740993", "9007199254740992"];
              return [shown(...long), shown("1.0", "1"), shown("1.50", "1.5")];
            }"""
        )
        assert shown == [2, 1, 1]
