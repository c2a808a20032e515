"""The protocol of an adapter: it streams one answer in pieces (LLM-01).

An adapter says no more than its wire demands. Deadlines, text mode, usage, ids and the mapping of
names are the same for all, and stand in `model_service`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from ..chat import ChatMessage
from .failures import AskedModel
from .service import LLMServiceError, ModelTool
from .tool_forms import ToolForm


@frozen
class TextPiece:
    """Some more text of the answer; "" says that the model still writes, a call for instance."""

    text: str


@frozen
class ThoughtPiece:
    """Some more of what the model thinks before it answers (LLM-96)."""

    text: str


@frozen
class CallPiece:
    """A call that the model has finished to write.

    Attributes:
        name: as the model wrote it.
        arguments: an object, or JSON text as the model wrote it.
        call_id: the provider's id; "" if it gives none.
        given_back: what the provider wants back with the call, as JSON.
    """

    name: str
    arguments: Mapping[str, Any] | str
    call_id: str = ""
    given_back: Mapping[str, Any] | None = None


@frozen
class MalformedPiece:
    """A call that cannot be read.

    Attributes:
        content: tells the model why.
        name: of the tool, as the model wrote it; "" if that cannot be read either.
    """

    content: str
    name: str = ""


@frozen
class UsagePiece:
    """The tokens that the provider counted; a later one replaces an earlier one."""

    prompt_tokens: int
    completion_tokens: int


@frozen
class EndPiece:
    """The provider has finished the answer; a stream that ends without it was cut off.

    Attributes:
        is_truncated: the limit of tokens ended it.
        refusal: the provider's reason to end it, such as SAFETY; "" if it did not.
    """

    is_truncated: bool = False
    refusal: str = ""


Piece = TextPiece | ThoughtPiece | CallPiece | MalformedPiece | UsagePiece | EndPiece


@frozen(kw_only=True)
class ModelRequest:
    """One request to a model.

    Attributes:
        system: the compiled system prompt.
        history: from the oldest to the newest.
        tools: the functions to declare; () in text mode.
        is_text_mode: calls and results are written as text.
        forms: of all tools, by their names, for the calls in the history.
        has_pictures: whether pictures are sent; otherwise a note stands for each.
        has_thoughts: whether calls have what their provider wants back with them.
        session_id: whose chat it is.
        temperature: None: the provider's default.
        max_tokens: of the answer; None: the provider's default.
    """

    system: str
    history: Sequence[ChatMessage]
    tools: Sequence[ModelTool] = ()
    is_text_mode: bool = False
    forms: Mapping[str, ToolForm] = field(factory=dict)
    has_pictures: bool = True
    has_thoughts: bool = True
    session_id: str = ""
    temperature: float | None = None
    max_tokens: int | None = None

    @property
    def tool_names(self) -> frozenset[str]:
        """The names that a call may have, inside and as the model is told them."""
        return frozenset(self.forms).union(form.name for form in self.forms.values())


class Provider(Protocol):
    """The adapter of one provider. It belongs to one event loop."""

    @property
    def name(self) -> str:
        """As in the setting."""

    @property
    def hosts(self) -> Sequence[str]:
        """The vendors of `portability` whose rules for tools hold; () changes no tool."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes for people on how the model is asked (LLM-35)."""

    @property
    def max_tools(self) -> int | None:
        """The most tools of a request; None: any number."""

    @property
    def takes_pictures(self) -> bool:
        """Tell whether results may have pictures."""

    async def connect(self) -> None:
        """Import the vendor's package in a thread, and make its client.

        Raises:
            UsageError: the extra is missing.
        """

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models; raises as `stream` does."""

    def stream(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream one answer. Closing the generator ends the request at the provider at once."""

    def asked(self, model: str) -> AskedModel:
        """Return the model as people know it, for failures that are not the package's."""

    def failure_of(self, error: Exception, model: str) -> LLMServiceError | None:
        """Return what an error of the vendor's package means; None if it is a bug."""

    def set_api_key(self, api_key: str) -> None:
        """Use another key from the next request on (LLM-09)."""

    async def close(self) -> None:
        """Close the connections."""
