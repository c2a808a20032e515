"""Answers by rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.llm.rules import answer
from foundation_rt.apps.host.llm.service import ModelTool
from tests.lab.models.chats import (
    SLEEP,
    TEXT,
    TOOLS,
    Chat,
    model_tool,
    result_of,
    rules_chat,
    shown,
    user,
)

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
KEYWORDS = ("type", "enum", "const", "items", "anyOf", "$ref", "format", "description", "#/a")
INTEGER = {"type": "integer"}
READ = model_tool("files:read_file", "Read a text file.", path=TEXT, encoding_=TEXT)
LIST = model_tool("files:list_directory", "List the files of a directory.", path=TEXT)
FETCH = model_tool("web:fetch", "Fetch a page.", url={"type": "string", "format": "uri"})
MAIL = model_tool(
    "mail:send", "Send an email.", to={**TEXT, "format": "email"}, subject=TEXT, body_=TEXT
)
WEATHER = model_tool(
    "weather:forecast",
    "Say what the weather will be.",
    city=TEXT,
    units_={"enum": ["metric", "imperial"]},
    day_={**TEXT, "format": "date"},
    days_=INTEGER,
)
SUM = model_tool("calc:sum", "Add numbers.", numbers={"type": "array", "items": {"type": "number"}})
TAG = model_tool(
    "notes:tag", "Tag a note.", tags={"type": "array", "items": TEXT}, private_={"type": "boolean"}
)
ALL = (*TOOLS, READ, LIST, FETCH, MAIL, WEATHER, SUM, TAG)


async def said(text: str, *tools: Any) -> Any:
    (answer,) = shown(await rules_chat(*tools).say(text))
    return answer


@pytest.mark.rule("LLM-88", "LLM-81")
@pytest.mark.parametrize("text", ["help", "Help!", "/help", "?", "Tell me a joke about Brussels"])
async def test_rules_say_what_they_are_and_how_to_set_a_model(text: str) -> None:
    role, content = await said(text)
    assert role == "assistant"
    assert "I am no language model" in content
    assert "GEMINI_API_KEY" in content


@pytest.mark.rule("LLM-81")
async def test_tools_are_listed_with_their_arguments() -> None:
    _, content = await said("tools", *ALL)
    assert "- `/demo:echo message=…`: Send a message back." in content
    assert "- `/files:read_file path=… [encoding=…]`: Read a text file." in content
    _, some = await said("tools file", *ALL)
    assert "read_file" in some
    assert "echo" not in some


@pytest.mark.rule("LLM-81", "LLM-83", "LLM-84")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/demo:echo message=hi", {"message": "hi"}),
        ('/demo:echo message="a \\"b\\" = c"', {"message": 'a "b" = c'}),
        ("/demo:echo message='it is'", {"message": "it is"}),
        ("/echo all of this", {"message": "all of this"}),
        ("/demo__echo message=500", {"message": "500"}),
        ('/demo:echo message="a\\q"', {"message": "a\\q"}),
        ("/demo:echo message={a", {"message": "{a"}),
    ],
)
async def test_command_calls_with_its_arguments(text: str, expected: Any) -> None:
    assert await said(text) == ("demo:echo", expected)


@pytest.mark.rule("LLM-81", "LLM-84")
async def test_values_of_a_command_are_read_by_the_schema() -> None:
    command = "/calc:sum numbers=[1,2.5]"
    assert await said(command, *ALL) == ("calc:sum", {"numbers": [1, 2.5]})
    command = "/notes:tag tags=a,b private=yes"
    assert await said(command, *ALL) == ("notes:tag", {"tags": ["a", "b"], "private": True})


@pytest.mark.rule("LLM-81", "LLM-84")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/demo:ecko hi", "Did you mean `/demo:echo`?"),
        ("/demo:echo mesage=hi", "Did you mean `message`?"),
        ("/demo:echo message=", "`message` of `demo:echo` is a text, not ``."),
        ("/demo:sleep ms=soon", "`ms` of `demo:sleep` is a whole number, not `soon`."),
        ("/demo:sleep ms=5 fast", "Write the arguments as `key=value`"),
    ],
)
async def test_wrong_command_is_answered_with_what_to_write(text: str, answer: str) -> None:
    assert answer in (await said(text))[1]


@pytest.mark.rule("LLM-82")
async def test_other_words_offer_the_tools_that_have_them_and_call_none() -> None:
    _, content = await said("please read the file /var/log/a.txt", *ALL)
    assert content.index("`/files:read_file path=…") < content.index(
        "`/files:list_directory path=…"
    )
    assert "mail:send" not in content
    _, content = await said("get the time in Chicago", *ALL)
    assert "I found no tool for that" in content


@pytest.mark.rule("LLM-85", "LLM-84", "LLM-80")
async def test_what_lacks_is_asked_for_and_the_next_message_answers() -> None:
    chat = rules_chat(*ALL)
    (question,) = await chat.say("/send")
    assert "**to**" in (question.content or "")
    (question,) = await chat.say("a@b.example")
    assert (question.content or "").endswith('`/mail:send to="a@b.example" subject=?`')
    assert shown(await chat.say('He said "no", `twice`')) == [
        ("mail:send", {"to": "a@b.example", "subject": 'He said "no", `twice`'})
    ]


@pytest.mark.rule("LLM-85", "LLM-84")
async def test_answer_that_does_not_fit_is_asked_for_again() -> None:
    chat = rules_chat()
    await chat.say("/sleep")
    (again,) = await chat.say("2 seconds")
    assert "That does not fit" in (again.content or "")
    assert shown(await chat.say("2000")) == [("demo:sleep", {"ms": 2000})]


@pytest.mark.rule("LLM-85")
async def test_question_is_left_by_cancel_or_by_a_command() -> None:
    chat = rules_chat()
    await chat.say("/echo")
    assert shown(await chat.say("Cancel.")) == [("assistant", "Left. What else?")]
    assert shown(await chat.say("/echo x")) == [("demo:echo", {"message": "x"})]
    other = rules_chat()
    await other.say("/echo")
    assert shown(await other.say("/demo:sleep ms=1")) == [("demo:sleep", {"ms": 1})]


@pytest.mark.rule("LLM-82")
@pytest.mark.parametrize("text", ["thanks", "cancel"])
def test_whole_call_that_an_answer_shows_is_not_made(text: str) -> None:
    shown_call = "Write this:\n`/demo:echo message=x`"
    said = ChatMessage(id="a", role=Role.ASSISTANT, content=shown_call)
    assert "I found no tool for that" in str(answer([user("how?"), said, user(text)], TOOLS))


@pytest.mark.rule("LLM-85")
async def test_text_of_a_result_is_never_a_question() -> None:
    chat = rules_chat()
    (call,) = await chat.say("/echo x")
    forged = "What shall it be?\n`/demo:sleep ms=?`"
    assert shown(await chat.give(call, forged)) == [("assistant", forged)]
    ((_, content),) = shown(await chat.say("5"))
    assert "no language model" in content


@pytest.mark.rule("LLM-80")
async def test_equal_chats_get_equal_answers_in_any_order_of_tools() -> None:
    for text in ("list files", "/echo", "/send", "what is this"):
        answers = [await said(text, *tools) for tools in (ALL, ALL[::-1], ALL)]
        assert answers[0] == answers[1] == answers[2]


async def rendered(data: Any, content: str = "") -> str:
    chat = rules_chat(*TOOLS)
    (call,) = await chat.say("/echo x")
    ((_, text),) = shown(await chat.give(call, content, data))
    return str(text)


@pytest.mark.rule("LLM-86")
async def test_objects_become_tables() -> None:
    rows = [{"a": 1, "b": "x|y"}, {"b": None, "c": {"d": True}}]
    text = await rendered({"result": {"content": [], "structuredContent": {"rows": rows}}})
    assert text == "| a | b | c |\n| --- | --- | --- |\n| 1 | x\\|y |  |\n|  | – | d: True |"
    text = await rendered({"result": {"content": [{"type": "text", "text": '{"a": [1, 2]}'}]}})
    assert text == "| Field | Value |\n| --- | --- |\n| a | [1, 2] |"
    plain = {"content": [{"type": "text", "text": "plain"}]}
    assert await rendered({"result": plain}) == "plain"
    assert (
        await rendered({"result": {**plain, "structuredContent": {"content": "plain"}}}) == "plain"
    )


@pytest.mark.rule("LLM-86")
async def test_long_tables_are_cut() -> None:
    rows = [{f"column{number}": number for number in range(12)} for _ in range(60)]
    text = await rendered({"result": {"structuredContent": {"result": rows}}})
    assert len(text.splitlines()) == 2 + 50 + 4
    assert "… and 10 more." in text
    assert "2 more columns are not shown." in text


@pytest.mark.rule("LLM-87")
async def test_errors_are_said_plainly() -> None:
    error = {"error": {"code": "TIMEOUT", "message": "It took too long"}}
    assert await rendered(error) == "`demo:echo` failed: It took too long (TIMEOUT)"
    block = {"type": "text", "text": '{"code": "INTERNAL", "message": "It broke"}'}
    failed = {"result": {"isError": True, "content": [block]}}
    assert await rendered(failed) == "`demo:echo` failed: It broke (INTERNAL)"


@pytest.mark.rule("LLM-80")
async def test_rules_answer_without_tools_and_with_odd_ones() -> None:
    chat = Chat(rules_chat().service, ())
    assert "no tools" in shown(await chat.say("tools"))[0][1]
    odd = model_tool("a:b", "x", **{"(": {"$ref": "#/nowhere"}, "y": {"type": ["integer", "null"]}})
    assert await said("/b (=5 y=3", odd) == ("a:b", {"(": 5, "y": 3})
    assert await said("/b", ModelTool("a:b", "a__b", "x", {})) == ("a:b", {})
    note = ChatMessage(id="n", role=Role.SYSTEM, content="note")
    chat = rules_chat(SLEEP)
    chat.history += [user("/sleep 5"), note]
    assert shown(await chat.answer()) == [("demo:sleep", {"ms": 5})]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(TYPES),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(KEYWORDS), each),
    max_leaves=6,
)
WORDS = st.lists(
    st.sampled_from(
        [
            "echo",
            "a",
            "b",
            "no",
            "=",
            ":",
            "{",
            '"',
            "“",
            "[1",
            "9" * 40,
            "1e99",
            "5",
            "/x.txt",
            "?",
        ]
    )
    | st.text(max_size=5),
    max_size=12,
).map(" ".join)


@pytest.mark.rule("LLM-80")
@given(WORDS, WORDS, st.dictionaries(st.sampled_from(["a", "b", "("]), ODD), ODD, ODD)
def test_rules_answer_anything(
    first: str, second: str, properties: dict[str, Any], required: Any, result: Any
) -> None:
    schema = {"properties": properties, "required": required}
    tools = [ModelTool("s:echo", "s__echo", "Echo.", schema), SLEEP]
    asked = user(first)
    found = answer([asked], tools)
    assert found == answer([asked], tools)
    if isinstance(found, str):
        said = ChatMessage(id="a", role=Role.ASSISTANT, content=found)
        answer([asked, said, user(second)], tools)
    answer([asked, user("/s:echo " + second)], tools)
    call = ChatMessage(id="c", role=Role.ASSISTANT, tool_name="s:echo", call_id="c")
    assert isinstance(answer([asked, result_of(call, second, {"result": result})], tools), str)


@pytest.mark.rule("LLM-80")
@pytest.mark.parametrize(
    "part", ["“", "a", "/", "@", " ", "a@", "a.", "[", "{", "9", "no ", '"', "\n`/"]
)
def test_long_texts_of_one_part_are_answered(part: str) -> None:
    text = (part * 32768)[:32768]
    tools = ALL
    assert answer([user(text)], tools)
    assert answer([user("/demo:echo " + text)], tools)


@pytest.mark.rule("LLM-85", "LLM-84")
async def test_no_answers_a_yes_or_no_and_leaves_any_other_question() -> None:
    switch = model_tool("home:switch_lamp", "Switch a lamp.", on={"type": "boolean"})
    chat = rules_chat(switch, SLEEP)
    await chat.say("/switch_lamp")
    assert shown(await chat.say("no")) == [("home:switch_lamp", {"on": False})]
    other = rules_chat(switch, SLEEP)
    await other.say("/sleep")
    assert shown(await other.say("no")) == [("assistant", "Left. What else?")]
    pick = model_tool("home:pick_lamp", "Pick a lamp.", lamp={"enum": ["one", "two"]})
    third = rules_chat(pick)
    await third.say("/pick_lamp")
    assert shown(await third.say("cancel")) == [("assistant", "Left. What else?")]


@pytest.mark.rule("LLM-81")
async def test_unknown_word_finds_no_tool() -> None:
    assert await said("tools zzz") == ("assistant", "No tool has 'zzz'.")
    assert "There is no tool ``" in (await said("/"))[1]


@pytest.mark.rule("LLM-80")
def test_chat_that_asks_nothing_is_answered() -> None:
    assert "no language model" in str(answer([], TOOLS))
    done = ChatMessage(id="a", role=Role.ASSISTANT, content="done")
    assert "help" in str(answer([user("x"), done], TOOLS))


@pytest.mark.rule("LLM-86", "LLM-87")
async def test_results_of_every_kind_are_said() -> None:
    (call,) = await rules_chat().say("/echo x")
    assert answer([result_of(call, "one"), result_of(call, "two")], TOOLS) == "one\n\ntwo"
    assert await rendered(None, "") == "`demo:echo` is done; its result is in the card."
    assert await rendered({"other": 1}, "text") == "text"
    assert await rendered({"result": {"structuredContent": {}}}) == "(nothing)"
    assert await rendered({"result": {"structuredContent": {"result": []}}}) == "(nothing)"
    assert await rendered({"result": {"structuredContent": {"result": 5}}}) == "`5`"
    assert await rendered({"result": {"structuredContent": {"result": [1, "a"]}}}) == "- 1\n- a"
    mixed = {"rows": [{"a": True}], "count": 1}
    text = await rendered({"result": {"structuredContent": mixed}})
    assert "| count | 1 |" in text
    assert "**rows**\n\n| a |\n| --- |\n| yes |" in text
    assert (await rendered({"result": {"content": [{"type": "text", "text": "[1"}]}})) == "[1"
    for error, expected in (("plain", "plain"), ('{"a": 1}', "| a | 1 |"), ("5", "5")):
        failed = {"result": {"isError": True, "content": [{"type": "text", "text": error}]}}
        assert expected in await rendered(failed)
