"""The dialects of the three wires of language models: the bytes of one answer in each. Pure.

An answer is steps, as in a script: a text, `{"thought": "..."}`, `{"call": NAME, "arguments":
{...}, "id": ID}`, `{"truncated": true}`, `{"refusal": WORD}`, `{"usage": {...}}`; "hang", "cut" and
"reset" are given to the server as they are. What a server does otherwise than its vendor's
documents say is a trait; `DIALECTS` has the servers that people run.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

Step = str | Mapping[str, Any]
CONTROLS = ("hang", "cut", "reset")


@frozen(kw_only=True)
class Traits:
    """How a server writes the answers of a wire.

    Attributes:
        wire: openai, anthropic or gemini.
        first_index: of the first call.
        index: a number for each `call`, `none`, `same` for all, or another one for each `piece`.
        ids: in the `first` part of a call, in `each`, a `new` one in each, or `none`.
        name: `whole`, in `pieces`, or `repeated` in each part.
        opening: the arguments of the first part: `text`, `null`, `missing`, `{}` or `object`.
        piece: characters of arguments in a part; 0: all of them, as the wire has them at once.
        nothing: arguments of a call without any, as text.
        finish: the reason for which the answer ends; None: the right one, `missing`: none at all.
        has_done: the stream ends with its last event.
        has_usage: the end of the answer has it.
        is_one_object: the answer is no stream.
        thought: where it stands: a member of the delta, `think` in the text, or `parts`.
        extra: of each call.
        noise: between the events.
    """

    wire: str = "openai"
    first_index: int = 0
    index: str = "call"
    ids: str = "first"
    name: str = "whole"
    opening: str = "text"
    piece: int = 9
    nothing: str = "{}"
    finish: str | None = None
    has_done: bool = True
    has_usage: bool = True
    is_one_object: bool = False
    thought: str = "reasoning_content"
    extra: Mapping[str, Any] | None = None
    noise: bytes = b""


SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
DIALECTS = {
    "openai": Traits(),
    "vllm": Traits(opening="missing", thought="reasoning", nothing=""),
    "vllm-ids": Traits(opening="null", ids="new", piece=4),
    "ollama": Traits(index="same", piece=0, thought="reasoning"),
    "llama.cpp": Traits(piece=1, thought="reasoning_content", nothing=""),
    "lmstudio": Traits(opening="null", name="pieces", thought="think"),
    "litellm": Traits(opening="{}", has_usage=False),
    "bedrock": Traits(first_index=1, ids="each", opening="missing", finish="tool_use"),
    "openrouter": Traits(thought="reasoning_details", noise=b": OPENROUTER PROCESSING\n\n"),
    "deepseek": Traits(noise=b": keep-alive\r\n\r\n", nothing="null"),
    "kimi": Traits(index="none", name="repeated", finish=""),
    "mistral": Traits(index="none", piece=0, thought="parts"),
    "gemini-openai": Traits(index="same", ids="none", piece=0, extra=SIGNED, thought="think"),
    "gateway-object": Traits(is_one_object=True, finish="unknown", thought="reasoning"),
    "gateway-moving": Traits(index="piece", ids="none", finish="missing"),
    "anthropic": Traits(wire="anthropic"),
    "anthropic-whole": Traits(
        wire="anthropic", piece=0, has_usage=False, first_index=1, finish="missing"
    ),
    "anthropic-moving": Traits(wire="anthropic", index="piece", opening="missing", nothing=""),
    "anthropic-object": Traits(wire="anthropic", is_one_object=True),
    "gemini": Traits(wire="gemini"),
}


def encoded(steps: Sequence[Step], traits: Traits) -> Iterator[bytes | str]:
    """Yield the body of an answer; "hang", "cut" and "reset" as such."""
    return {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}[traits.wire](
        steps, traits
    )


def _event(value: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _control(step: Step) -> str | None:
    return None if isinstance(step, str) else next((c for c in CONTROLS if c in step), None)


def _member(steps: Sequence[Step], name: str, default: Any = None) -> Any:
    return next((s[name] for s in steps if not isinstance(s, str) and name in s), default)


def _finish(right: str, traits: Traits) -> str | None:
    if traits.finish == "missing":
        return None
    return right if traits.finish is None else traits.finish


def _pieces(text: str, size: int) -> list[str]:
    size = size or max(len(text), 1)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _written(step: Mapping[str, Any], traits: Traits) -> str:
    arguments = step.get("arguments", {})
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments) if arguments else traits.nothing


# -- /chat/completions


def _openai(steps: Sequence[Step], traits: Traits) -> Iterator[bytes | str]:
    kind = "chat.completion" if traits.is_one_object else "chat.completion.chunk"
    head = {"id": "x", "object": kind, "created": 1, "model": "m"}
    usage = _member(steps, "usage")
    counts = usage and {
        "prompt_tokens": usage["promptTokens"],
        "completion_tokens": usage["completionTokens"],
        "total_tokens": 0,
    }
    if traits.is_one_object:
        choice = {"index": 0, "message": _openai_message(steps, traits)}
        choice["finish_reason"] = _openai_finish(steps, traits)
        yield json.dumps({**head, "choices": [choice], "usage": counts}, indent=1).encode()
        return
    for delta in _openai_deltas(steps, traits):
        if isinstance(delta, str):
            yield delta
            return
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _event({**head, "choices": [choice]}) + traits.noise
    finish = _openai_finish(steps, traits)
    if finish is not None:
        yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if counts and traits.has_usage:
        yield _event({**head, "choices": [], "usage": counts})
    if traits.has_done:
        yield b"data: [DONE]\n\n"


def _openai_finish(steps: Sequence[Step], traits: Traits) -> str | None:
    if _member(steps, "truncated"):
        return "length"
    if _member(steps, "refusal"):
        return "content_filter"
    right = "tool_calls" if _member(steps, "call") else "stop"
    return (
        None if traits.finish == "missing" else (right if traits.finish is None else traits.finish)
    )


def _openai_deltas(steps: Sequence[Step], traits: Traits) -> Iterator[Any]:
    yield {"role": "assistant", "content": ""}
    count = sent = 0
    for step in steps:
        if isinstance(step, str):
            yield {
                "content": [{"type": "text", "text": step}] if traits.thought == "parts" else step
            }
        elif (control := _control(step)) is not None:
            yield control
        elif "thought" in step:
            yield from map(dict, _openai_thoughts(step["thought"], traits))
        elif "call" in step:
            for part in _openai_parts(step, traits):
                number = {"call": count, "same": 0, "piece": sent}.get(traits.index)
                own = {} if number is None else {"index": number + traits.first_index}
                yield {"tool_calls": [{**own, **part}]}
                sent += 1
            count += 1


def _openai_thoughts(thought: str, traits: Traits) -> Iterator[Mapping[str, Any]]:
    for number, piece in enumerate(_pieces(thought, 7)):
        if traits.thought == "reasoning_details":
            detail = {"type": "reasoning.text", "text": piece, "index": 0, "format": "x"}
            yield {"reasoning": piece, "reasoning_details": [{**detail, "signature": None}]}
        elif traits.thought == "parts":
            yield {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]}
        elif traits.thought == "think":
            yield {"content": f"<think>{piece}" if number == 0 else piece}
        else:
            yield {traits.thought: piece}
    if traits.thought == "reasoning_details":
        detail = {"type": "reasoning.text", "index": 0, "signature": "signed"}
        yield {"reasoning_details": [detail]}
    elif traits.thought == "think":
        yield {"content": "</think>\n\n"}


_OPENINGS: Mapping[str, Mapping[str, Any]] = {
    "missing": {},
    "null": {"arguments": None},
    "{}": {"arguments": "{}"},
    "object": {"arguments": {}},
}


def _openai_parts(step: Mapping[str, Any], traits: Traits) -> Iterator[dict[str, Any]]:
    """Yield the parts of a call, without their index."""
    name, call_id, text = step["call"], step.get("id"), _written(step, traits)
    pieces = _pieces(text, traits.piece)
    names = [name[:3], name[3:]] if traits.name == "pieces" else [name]
    opening: dict[str, Any] = dict(_OPENINGS.get(traits.opening, {"arguments": ""}))
    if traits.opening == "text" and pieces and len(names) == 1:
        opening = {"arguments": pieces.pop(0)}
    if traits.piece == 0:
        opening, pieces = {"arguments": text}, []
    functions = [{"name": each} for each in names]
    functions[0] |= opening
    own = {"name": name} if traits.name == "repeated" else {}
    functions += [{**own, "arguments": piece} for piece in pieces]
    for number, function in enumerate(functions):
        part: dict[str, Any] = {"function": function}
        if traits.ids != "none" and call_id and (number == 0 or traits.ids != "first"):
            part["id"] = f"{call_id}-{number}" if traits.ids == "new" and number else call_id
        if number == 0:
            part |= {
                "type": "function",
                **({"extra_content": traits.extra} if traits.extra else {}),
            }
        yield part


def _openai_message(steps: Sequence[Step], traits: Traits) -> dict[str, Any]:
    """Return the whole answer as one message."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls = [each for each in steps if not isinstance(each, str) and "call" in each]
    if texts := [each for each in steps if isinstance(each, str)]:
        message["content"] = "".join(texts)
    if thought := _member(steps, "thought"):
        message[traits.thought] = thought
    if calls:
        message["tool_calls"] = [
            {
                "id": each.get("id"),
                "type": "function",
                "function": {"name": each["call"], "arguments": _written(each, traits)},
            }
            for each in calls
        ]
    return message


# -- /v1/messages


def _anthropic(steps: Sequence[Step], traits: Traits) -> Iterator[bytes | str]:
    usage = _member(steps, "usage", {"promptTokens": 1, "completionTokens": 1})
    head: dict[str, Any] = {"id": "x", "type": "message", "role": "assistant", "model": "m"}
    reason = _anthropic_reason(steps, traits)
    counts = {"input_tokens": usage["promptTokens"], "output_tokens": usage["completionTokens"]}
    if traits.is_one_object:
        blocks = [block for block, _ in _anthropic_blocks(steps, traits) if isinstance(block, dict)]
        yield json.dumps(
            {**head, "content": blocks, "stop_reason": reason, "usage": counts}
        ).encode()
        return
    message = {**head, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
    yield _named("message_start", message=message)
    sent = traits.first_index
    for number, (block, deltas) in enumerate(_anthropic_blocks(steps, traits), traits.first_index):
        if isinstance(block, str):
            yield block
            return
        own = sent if traits.index == "piece" else number
        yield _named("content_block_start", index=own, content_block=block) + _named("ping")
        for delta in deltas:
            if isinstance(delta, str):
                yield delta
                return
            sent += 1
            own = (
                sent if traits.index == "piece" and delta["type"] == "input_json_delta" else number
            )
            yield _named("content_block_delta", index=own, delta=delta) + traits.noise
        sent = max(sent, number) + 1
        yield _named("content_block_stop", index=number)
    end = {"usage": {"output_tokens": counts["output_tokens"]}} if traits.has_usage else {}
    yield _named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, **end)
    if traits.has_done:
        yield _named("message_stop")


def _named(kind: str, **values: Any) -> bytes:
    return _event({"type": kind, **values}, kind)


def _anthropic_reason(steps: Sequence[Step], traits: Traits) -> str | None:
    if _member(steps, "truncated"):
        return "max_tokens"
    if _member(steps, "refusal"):
        return "refusal"
    right = "tool_use" if _member(steps, "call") else "end_turn"
    return (
        None if traits.finish == "missing" else (right if traits.finish is None else traits.finish)
    )


def _anthropic_blocks(steps: Sequence[Step], traits: Traits) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the start of each block and its deltas; of an object, the blocks are whole."""
    texts: list[Any] = []
    for step in (*steps, {"end": True}):
        if isinstance(step, str):
            texts.append({"type": "text_delta", "text": step})
            continue
        if _control(step) is not None and texts:
            texts.append(_control(step))
        if texts:
            whole = "".join(each["text"] for each in texts) if traits.is_one_object else ""
            yield {"type": "text", "text": whole}, texts
            texts = []
        elif _control(step) is not None:
            yield _control(step), []
        if "thought" in step:
            yield _anthropic_thought(step["thought"], traits)
        elif "call" in step:
            yield _anthropic_call(step, traits)


def _anthropic_thought(thought: str, traits: Traits) -> tuple[Any, list[Any]]:
    if traits.is_one_object:
        return {"type": "thinking", "thinking": thought, "signature": "signed"}, []
    deltas = [{"type": "thinking_delta", "thinking": each} for each in _pieces(thought, 7)]
    signature = {"type": "signature_delta", "signature": "signed"}
    return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature]


def _anthropic_call(step: Mapping[str, Any], traits: Traits) -> tuple[Any, list[Any]]:
    block = {"type": "tool_use", "id": step.get("id"), "name": step["call"]}
    if traits.is_one_object or traits.piece == 0:
        return {**block, "input": step.get("arguments", {})}, []
    own = {} if traits.opening == "missing" else {"input": {}}
    pieces = _pieces(_written(step, traits), traits.piece)
    return {**block, **own}, [{"type": "input_json_delta", "partial_json": each} for each in pieces]


# -- :streamGenerateContent


def _gemini(steps: Sequence[Step], traits: Traits) -> Iterator[bytes | str]:
    finish = _member(steps, "finish", "STOP")
    for step in steps:
        if isinstance(step, str):
            yield _candidate({"text": step})
        elif (control := _control(step)) is not None:
            yield control
            return
        elif "thought" in step:
            yield _candidate({"text": step["thought"], "thought": True})
        elif "call" in step:
            yield _candidate(_gemini_call(step))
        elif "blocked" in step:
            yield _event({"promptFeedback": {"blockReason": step["blocked"]}})
            return
        elif "truncated" in step or "refusal" in step:
            finish = "MAX_TOKENS" if "truncated" in step else "SAFETY"
    yield _candidate({"text": ""}, finish, _member(steps, "usage"))


def _candidate(part: Any, finish: str | None = None, usage: Any = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
    found: dict[str, Any] = {"candidates": [candidate]}
    if finish is not None:
        candidate["finishReason"] = finish
    if usage is not None:
        found["usageMetadata"] = {
            "promptTokenCount": usage["promptTokens"],
            "candidatesTokenCount": usage["completionTokens"],
        }
    return _event(found)


def _gemini_call(step: Mapping[str, Any]) -> dict[str, Any]:
    call = {"name": step["call"], "args": step.get("arguments", {})}
    if step.get("id"):
        call["id"] = step["id"]
    part: dict[str, Any] = {"functionCall": call}
    if "signature" in step:
        part["thoughtSignature"] = base64.b64encode(step["signature"].encode()).decode()
    return part
