"""The choice of provider and model, and the service for it (LLM-10 to LLM-14).

`RulesProvider` stands for a model where there is none (LLM-80).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from attrs import evolve

from foundation_rt import UsageError

from ....base.close_names import close_names
from ....errors import MissingExtraError
from .failures import AskedModel
from .model_service import ModelService
from .provider import CallPiece, EndPiece, ModelRequest, Piece, Provider, TextPiece
from .service import NATIVE_MODE, LLMConfig, LLMServiceError

GEMINI, OPENAI, ANTHROPIC, RULES = "gemini", "openai", "anthropic", "rules"
PROVIDERS = (GEMINI, OPENAI, ANTHROPIC, RULES)

ENTRY_POINTS = "foundation-rt.llm_providers"
"""The group of the entry points by which packages add providers (LLM-19)."""

KEY_VARIABLES = {
    GEMINI: "GEMINI_API_KEY",
    ANTHROPIC: "ANTHROPIC_API_KEY",
    OPENAI: "OPENAI_API_KEY",
}
"""The variable with the key of each vendor, in the order in which keys choose (LLM-11)."""

DEFAULT_MODELS = {GEMINI: "gemini-flash-latest"}

_PACKAGES = {GEMINI: "google.genai", OPENAI: "openai", ANTHROPIC: "anthropic"}


def choose_provider(keys: Mapping[str, str]) -> str:
    """Return the provider of the first key that is set; without any, the rules (LLM-11).

    Args:
        keys: by provider; "" counts as not set.
    """
    return next((name for name in KEY_VARIABLES if keys.get(name)), RULES)


def parse_model(words: str) -> tuple[str, str]:
    """Return provider and model of `PROVIDER:NAME`; the name may be left out (LLM-10).

    Raises:
        UsageError: there is no such provider.
    """
    provider, _, model = words.strip().partition(":")
    problem = provider_problem(provider)
    if problem is not None:
        raise UsageError(f"--model {words}: {problem}")
    return provider, model


def provider_problem(provider: str) -> str | None:
    """Return why this is no provider, and which there are; None if it is one (LLM-10)."""
    if provider in PROVIDERS or _added(provider) is not None:
        return None
    near = close_names(provider.lower(), PROVIDERS, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    known = "gemini, openai, anthropic or rules"
    return f"there is no provider {provider[:64]!r}{hint}; write {known}"


def _added(provider: str) -> EntryPoint | None:
    """Return what makes a provider that a package adds; None if there is none of that name."""
    return next(iter(entry_points(group=ENTRY_POINTS, name=provider)), None)


def complete_config(config: LLMConfig) -> LLMConfig:
    """Return the configuration with what it leaves out; the provider "" is chosen by the key.

    Raises:
        UsageError: it cannot be right; says what to write.
    """
    problem = provider_problem(config.provider)
    if problem is not None:
        raise UsageError(problem)
    if config.provider in KEY_VARIABLES and not config.api_key and not config.base_url:
        variable = KEY_VARIABLES[config.provider]
        raise UsageError(f"{config.provider} needs a key: set {variable}, here or in .env")
    if config.provider == RULES and config.model:
        raise UsageError("the rules have no models: --model rules")
    if not config.model and config.provider in DEFAULT_MODELS:
        return evolve(config, model=DEFAULT_MODELS[config.provider])
    return config


def make_service(config: LLMConfig) -> ModelService:
    """Return the service of a provider; nothing of the vendor's is imported yet (LLM-03).

    Raises:
        UsageError: the configuration cannot be right, or the extra is missing; says what to do.
    """
    config = complete_config(config)
    if config.provider == RULES:  # they read the tools themselves
        config = evolve(config, tool_mode=NATIVE_MODE)
    _require_package(config.provider)
    return ModelService(_provider(config), config)


def _provider(config: LLMConfig) -> Provider:
    if config.provider == RULES:
        return RulesProvider()
    if config.provider == OPENAI:
        from .openai import OpenAIProvider

        return OpenAIProvider(config)
    if config.provider == ANTHROPIC:
        from .anthropic import AnthropicProvider

        return AnthropicProvider(config)
    if config.provider == GEMINI:
        from .gemini import GeminiProvider

        return GeminiProvider(config)
    added = _added(config.provider)
    assert added is not None  # `complete_config` has found it
    provider: Provider = added.load()(config)
    return provider


def _require_package(provider: str) -> None:
    """Raise `UsageError` with the install command if the extra is missing (LLM-12)."""
    package = _PACKAGES.get(provider)
    if package is None:
        return
    try:
        is_there = find_spec(package) is not None
    except ModuleNotFoundError:  # of the package above it
        is_there = False
    if not is_there:
        raise MissingExtraError(provider, f"host-{provider}")


class RulesProvider:
    """Answers by rules: no key, no network, and equal chats give equal answers."""

    name = RULES
    takes_pictures = False
    hosts: Sequence[str] = ()
    notes: Sequence[str] = ()
    max_tools: int | None = None

    async def connect(self) -> None:
        """Import the rules in a thread, as the SDK of a vendor is (LLM-03)."""
        await asyncio.to_thread(import_module, ".rules", __package__)

    async def list_models(self) -> Sequence[str]:
        """Return the only one, which has no name."""
        return [""]

    async def stream(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Answer at once."""
        from .rules import Call, answer

        found = answer(request.history, request.tools)
        if isinstance(found, Call):
            yield CallPiece(found.tool.name, found.arguments)
        else:
            yield TextPiece(found)
        yield EndPiece()

    def asked(self, model: str) -> AskedModel:
        """Return the rules as people know them."""
        return AskedModel(provider=self.name, model=model)

    def failure_of(self, error: Exception, model: str) -> LLMServiceError | None:
        """Return None: the rules do not fail."""
        return None

    def set_api_key(self, api_key: str) -> None:
        """Ignore the key: the rules need none."""

    async def close(self) -> None:
        """Do nothing."""
