"""Which provider and model is used."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from foundation_rt import UsageError
from foundation_rt.apps.host.llm import providers, rules
from foundation_rt.apps.host.llm.providers import choose_provider, make_service, parse_model
from foundation_rt.apps.host.llm.service import LLMConfig
from tests.lab.models.chats import Chat, rules_chat, shown, write_script


@pytest.mark.rule("LLM-10")
def test_model_is_named_with_its_provider() -> None:
    assert parse_model("openai:gpt-x:latest") == ("openai", "gpt-x:latest")
    assert parse_model("gemini") == ("gemini", "")


@pytest.mark.rule("LLM-10")
def test_unknown_provider_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"did you mean openai\?.*gemini, openai, anthropic"):
        parse_model("openia:x")
    with pytest.raises(UsageError, match="there is no provider 'x'"):
        make_service(LLMConfig(provider="x"))


@pytest.mark.rule("LLM-11")
def test_first_key_decides() -> None:
    keys = {"openai": "o", "anthropic": "a", "gemini": "g"}
    assert choose_provider(keys) == "gemini"
    assert choose_provider({**keys, "gemini": ""}) == "anthropic"
    assert choose_provider({"openai": "o"}) == "openai"
    assert choose_provider({}) == "rules"


@pytest.mark.rule("LLM-12")
@pytest.mark.parametrize("provider", ["gemini", "openai", "anthropic"])
def test_missing_extra_is_refused_with_the_command(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"pip install 'foundation-rt\[host-{provider}\]'"):
        make_service(LLMConfig(provider=provider, api_key="k", model="m"))
    assert importlib.util.find_spec("attrs") is not None


@pytest.mark.rule("LLM-13")
def test_vendor_without_a_key_is_refused_with_the_variable() -> None:
    with pytest.raises(UsageError, match="set ANTHROPIC_API_KEY"):
        make_service(LLMConfig(provider="anthropic"))


@pytest.mark.rule("LLM-19")
async def test_package_adds_a_provider_by_an_entry_point(tmp_path: Path) -> None:
    assert parse_model("script:a/b") == ("script", "a/b")
    chat = Chat(make_service(write_script(tmp_path / "s", ["hello"])))
    assert chat.service.label == f"script:{tmp_path / 's'}"
    assert shown(await chat.say("hi")) == [("assistant", "hello")]


@pytest.mark.rule("LLM-14")
def test_model_of_the_rules_is_refused() -> None:
    with pytest.raises(UsageError, match="--model rules"):
        make_service(LLMConfig(provider="rules", model="x"))


@pytest.mark.rule("LLM-80")
async def test_error_of_the_rules_is_a_bug_and_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(rules, "answer", broken)
    with pytest.raises(ZeroDivisionError):
        await rules_chat().say("x")


@pytest.mark.rule("LLM-10")
async def test_label_is_provider_and_model() -> None:
    service = make_service(LLMConfig(provider="rules"))
    await service.initialize()
    assert service.label == "rules"
    assert not service.takes_pictures
