"""The rules of strict vendors and chat templates for a request: what each of them refuses.

`refusal(path, body)` says it in words like theirs; None if all take the request. A body is one of
OpenAI's chat completions, of Anthropic's messages or of Gemini's content.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foundation_rt.apps.host.llm.portability import CLAUDE, GEMINI, OPENAI, findings

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_BEGINNINGS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class RefusedError(Exception):
    """A vendor refuses the request."""


def refusal(path: str, body: Any) -> str | None:
    """Return why a vendor of this wire refuses a body; None if all of them take it."""
    check = _anthropic if "messages" in path else _gemini if "generate" in path.lower() else _openai
    try:
        json.dumps(body, ensure_ascii=False).encode()
        check(body)
    except RefusedError as error:
        return str(error)
    except UnicodeEncodeError:
        return "the body is no valid JSON: no low surrogate in string"
    return None


def _must(holds: Any, words: str) -> None:
    if not holds:
        raise RefusedError(words)


def _said(text: Any, where: str) -> None:
    _must(isinstance(text, str) and text.strip(), f"{where}: text must be non-empty")


def _picture(kind: str, data: str) -> None:
    begins = b64decode(data).startswith(_BEGINNINGS[kind])
    _must(begins, f"the image was specified using {kind}, but does not appear to be one")


def _definitions(host: str, tools: Sequence[tuple[str, str, Any]], schema_words: str) -> None:
    for number, (name, description, schema) in enumerate(tools):
        _must(_NAME.fullmatch(name), f"tools[{number}].function.name: must begin with a letter")
        too_long = f"Invalid 'tools[{number}].function.description': string too long."
        _must(len(description) <= 1024, too_long)
        found = findings([{"name": name, "inputSchema": schema}])
        wrong = [each.problem for each in found if each.is_refused and host in each.hosts]
        _must(not wrong, schema_words.format(name=name, number=number, wrong=wrong))
    _must(len(tools) <= 128, "Invalid 'tools': array too long. Expected at most 128.")


# -- OpenAI, Mistral, DeepSeek, and the templates of vLLM and llama.cpp


def _openai(body: Mapping[str, Any]) -> None:
    functions = [each["function"] for each in body.get("tools", ())]
    tools = [(each["name"], each["description"], each["parameters"]) for each in functions]
    _definitions(OPENAI, tools, "Invalid schema for function '{name}': {wrong}.")
    messages = list(body["messages"])
    if messages[0]["role"] == "system":
        _said(messages.pop(0)["content"], "messages[0]")
    _must(messages and messages[0]["role"] == "user", "the first message must be a user's")
    _must(messages[-1]["role"] in ("user", "tool"), "Expected last role User or Tool")
    ids: set[str] = set()
    before, waiting = "", list[str]()
    for number, message in enumerate(messages):
        role, content, where = message["role"], message.get("content"), f"messages[{number}]"
        _must(role == "tool" or not waiting, f"no tool message for the calls {waiting}")
        if role == "tool":
            _must(before in ("assistant", "tool") and waiting, "tool without a preceding call")
            _must(message["tool_call_id"] == waiting.pop(0), "tool_call_id of no call")
            _said(content, where)
        elif role == "user":
            _must(before != "tool", "Unexpected role 'user' after role 'tool'")
            _must(before != "user", "conversation roles must alternate user/assistant")
            _user_content(content, where)
        else:
            _must(role == "assistant", f"Unexpected role {role!r}")
            _must(before in ("user", "tool"), "conversation roles must alternate user/assistant")
            calls = message.get("tool_calls", ())
            _must("tool_calls" not in message or calls, "tool_calls: [] is too short")
            if content is not None or not calls:
                _said(content, where)
            waiting = [_openai_call(call, ids) for call in calls]
        before = role
    _must(not waiting, "messages with role 'tool' must follow")


def _user_content(content: Any, where: str) -> None:
    if isinstance(content, str):
        _said(content, where)
        return
    _must(content, f"{where}: content must not be empty")
    for part in content:
        if part["type"] == "text":
            _said(part["text"], where)
        else:
            head, _, data = part["image_url"]["url"].partition(";base64,")
            _picture(head.removeprefix("data:"), data)


def _openai_call(call: Any, ids: set[str]) -> str:
    call_id, function = call["id"], call["function"]
    _must(_MISTRAL_ID.fullmatch(call_id), f"Tool call id was {call_id}: must be a-z, 0-9, 9 long")
    _must(call_id not in ids, "tool call ids must be unique")
    ids.add(call_id)
    _must(_NAME.fullmatch(function["name"]), "tool_calls[0].function.name does not match")
    _must(isinstance(json.loads(function["arguments"]), dict), "arguments must be an object")
    return str(call_id)


# -- Anthropic


def _anthropic(body: Mapping[str, Any]) -> None:
    given = body.get("tools", ())
    tools = [(each["name"], each.get("description", ""), each["input_schema"]) for each in given]
    _definitions(CLAUDE, tools, "tools.{number}.custom.input_schema: {wrong}")
    if "system" in body:
        _said(body["system"], "system")
    ids: set[str] = set()
    before, waiting = "assistant", set[str]()
    for number, message in enumerate(body["messages"]):
        role, where = message["role"], f"messages.{number}"
        _must(role != before, f"{where}: roles must alternate")
        _must(message["content"], f"{where}: content must be non-empty")
        results = [each for each in message["content"] if each["type"] == "tool_result"]
        _must(message["content"][: len(results)] == results, f"{where}: tool_result comes first")
        found = {each["tool_use_id"] for each in results}
        _must(found == waiting, f"{where}: tool_use ids without tool_result: {waiting ^ found}")
        waiting = set()
        for block in _blocks(message["content"]):
            _must(given or "tool" not in block["type"], "requests with tool blocks define tools")
            if block["type"] == "tool_use":
                _must(role == "assistant" and block["id"] not in ids, "tool_use ids are unique")
                _must(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), "tool_use.id does not match")
                _must(_NAME.fullmatch(block["name"]), "tool_use.name does not match")
                _must(isinstance(block["input"], dict), "tool_use.input should be a dictionary")
                ids.add(block["id"])
                waiting.add(block["id"])
            elif block["type"] == "text":
                _said(block["text"], where)
            elif block["type"] == "image":
                _picture(block["source"]["media_type"], block["source"]["data"])
        before = role
    _must(before == "user", "the conversation must end with a user message")


def _blocks(content: Sequence[Any]) -> Iterator[Any]:
    for block in content:
        yield block
        if block["type"] == "tool_result":
            yield from _blocks(block["content"])


# -- Gemini


def _gemini(body: Mapping[str, Any]) -> None:
    declared = [each for tool in body.get("tools", ()) for each in tool["functionDeclarations"]]
    tools = [
        (each["name"], each.get("description", ""), each["parameters_json_schema"])
        for each in declared
    ]
    words = "GenerateContentRequest.tools[0].function_declarations[{number}].parameters: {wrong}"
    _definitions(GEMINI, tools, words)
    before, waiting = "model", list[str]()
    for content in body["contents"]:
        role, parts = content["role"], content["parts"]
        _must(role != before, "roles must alternate")
        _must(parts, "parts must not be empty")
        calls = [each["functionCall"] for each in parts if "functionCall" in each]
        responses = [each["functionResponse"] for each in parts if "functionResponse" in each]
        named = [each["name"] for each in responses]
        _must(named == waiting, "the number of function response parts must be that of the calls")
        _must(not (calls and role == "user"), "a function call turn comes after a user turn")
        for part in parts:
            if "text" in part:
                _said(part["text"], "contents.parts")
                _must(not responses, "a text beside function responses")
            elif "inlineData" in part:
                _picture(part["inlineData"]["mimeType"], part["inlineData"]["data"])
        waiting = [each["name"] for each in calls]
        before = role
    _must(before == "user", "the last turn must be a user's")
