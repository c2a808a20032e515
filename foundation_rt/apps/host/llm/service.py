"""The protocol of a language model, and its values (spec/host-llm.md)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from ..chat import ChatMessage, TokenUsage

if TYPE_CHECKING:
    from ...coordinator import ToolRegistryEntry

NATIVE_MODE = "native"
TEXT_MODE = "text"

MALFORMED_CALL = "malformed_tool_call"


class LLMFailure(StrEnum):
    """The kinds of failures of a request to a model; `failures` says of each what it means."""

    TRANSIENT = "transient"
    """The connection broke off, or the answer in it."""
    TIMEOUT = "timeout"
    """Nothing came in time: the provider may be at work on the request."""
    STALLED = "stalled"
    """As `TIMEOUT`, after the answer had begun."""
    EMPTY = "empty"
    UNREACHABLE = "unreachable"
    UNKNOWN_HOST = "unknown_host"
    NO_TLS = "no_tls"
    WRONG_ADDRESS = "wrong_address"
    WEB_PAGE = "web_page"
    BAD_KEY = "bad_key"
    FORBIDDEN = "forbidden"
    NO_CREDIT = "no_credit"
    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    UNKNOWN_MODEL = "unknown_model"
    TOO_LONG = "too_long"
    REFUSED = "refused"
    """The provider, or the model, does not want to answer this."""
    BAD_REQUEST = "bad_request"
    TOOLS_UNSUPPORTED = "tools_unsupported"
    """The model takes no functions: the service itself goes on in text mode."""
    TOOL_REFUSED = "tool_refused"
    """A tool is none that the provider takes: the service itself sends it in another form."""
    PICTURE_REFUSED = "picture_refused"
    """The provider does not take a picture: the service itself leaves the pictures out."""
    UNREADABLE_CALL = "unreadable_call"
    """The provider cannot read a call of its model: the service itself tells the model."""


class LLMServiceError(Exception):
    """A request to a model failed.

    Attributes:
        failure: what kind of failure it is.
        advice: what a person can change; "" without any.
        retry_after: seconds that the provider asks to wait; None if it said nothing.
        model: the model's name.
        text_shown: whether text of this answer had been yielded before.
    """

    def __init__(
        self,
        message: str,
        *,
        failure: LLMFailure,
        model: str,
        advice: str = "",
        retry_after: float | None = None,
        text_shown: bool = False,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.model = model
        self.advice = advice
        self.retry_after = retry_after
        self.text_shown = text_shown

    @property
    def for_people(self) -> str:
        """The failure, its reason and what to change, without any secret (LLM-33)."""
        return " ".join(filter(None, (str(self), self.advice)))


@frozen(kw_only=True)
class LLMConfig:
    """The settings of a model.

    Attributes:
        provider: its name, as in the setting.
        model: as the provider names it; "" for one that has to be found.
        api_key: a secret; never in a log, an error or a `repr`.
        base_url: of a server that speaks the provider's protocol; None: the provider's own.
        temperature: None: the provider's default.
        system_prompt: the base prompt.
        tool_mode: `TEXT_MODE`, or functions of the provider's own.
        max_output_tokens: None: the provider's default.
        first_token_timeout_ms: until the first piece of an answer.
        token_timeout_ms: between two pieces.
    """

    provider: str
    model: str = ""
    api_key: str = field(default="", repr=False)
    base_url: str | None = None
    temperature: float | None = None
    system_prompt: str = ""
    tool_mode: str = NATIVE_MODE
    max_output_tokens: int | None = None
    first_token_timeout_ms: int = 60_000
    token_timeout_ms: int = 30_000


@frozen
class ModelTool:
    """A tool as a model is told of it.

    Attributes:
        name: `server:tool`.
        outside_name: for models, which take `[A-Za-z0-9_-]{1,64}` alone.
        description: "" if there is none.
        parameters: the JSON Schema of the arguments.
        is_read_only: it says so itself.
    """

    name: str
    outside_name: str
    description: str
    parameters: Mapping[str, Any]
    is_read_only: bool = False

    @classmethod
    def of(cls, entry: ToolRegistryEntry) -> ModelTool:
        """Return a tool of a coordinator."""
        return cls(
            entry.qualified_name,
            entry.outside_name,
            entry.description or "",
            entry.parameters,
            entry.definition.is_read_only,
        )


@frozen(kw_only=True)
class GenerationOptions:
    """Options of one answer.

    Attributes:
        session_id: whose usage it counts to.
        request_id: names it, for `abort_generation`.
        model: as the provider names it; "" is that of the configuration.
        max_tokens: of the answer; None: the model's default.
    """

    session_id: str
    request_id: str
    model: str = ""
    max_tokens: int | None = None


class LLMService(Protocol):
    """A language model. It belongs to one event loop and serves any number of sessions at once."""

    async def initialize(self) -> None:
        """Import the vendor's package in a thread, and make its client; once.

        Raises:
            UsageError: the extra is missing, or the configuration cannot be right; says what to do.
        """

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models that the provider lists; raises as an answer does."""

    def generate_chat_message(
        self,
        history: Sequence[ChatMessage],
        tool_definitions: Sequence[ModelTool],
        server_tool_prompts: Mapping[str, str],
        options: GenerationOptions,
    ) -> AsyncGenerator[ChatMessage, None]:
        """Stream one answer: pieces of text, and calls of tools.

        Args:
            history: from the oldest to the newest, already pruned.
            tool_definitions: what the model may call; () takes the tools away.
            server_tool_prompts: guidance by the id of its server.
            options: of this answer.

        Yields:
            Messages of the role `assistant`: a piece of text in `content`, all of one answer with
            one id; a piece of a thought, the same with `THOUGHT` in its metadata and another id; or
            a call with `tool_name` (`server:tool`, or as the model wrote it if there is no such
            tool), `call_id` and `data`. Also messages of the role `system`, whose
            `metadata["problem"]` is `MALFORMED_CALL` and whose `content` tells the model what was
            wrong with a call.

        Raises:
            LLMServiceError: there is no answer, or it broke off.

        Closing the generator, or cancelling its task, ends the request at the provider at once.
        """

    def abort_generation(self, request_id: str) -> bool:
        """End an answer that is being streamed; return whether there was one."""

    def estimate_token_count(self, text: str) -> int:
        """Estimate how many tokens a text has: bytes / 4, corrected by what was reported."""

    def get_token_usage(self, session_id: str) -> TokenUsage | None:
        """Return the usage of a session so far; None if there is none."""

    def forget_usage(self, session_id: str) -> None:
        """Forget the usage of a session that has ended."""

    @property
    def takes_pictures(self) -> bool:
        """Tell whether the model reads pictures in results."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes for people on how the model is asked."""

    @property
    def max_tools(self) -> int | None:
        """The most tools that a request may have; None: any number."""

    def tool_notes(self, tool: ModelTool) -> Sequence[str]:
        """Return what is changed in a tool for the model, for people; () if nothing is."""

    @property
    def label(self) -> str:
        """`provider:model`, for people."""

    async def close(self) -> None:
        """End all answers, and close the connections."""
