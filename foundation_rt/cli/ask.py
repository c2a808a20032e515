"""The command `foundation-rt ask`: one question to a chat, on the terminal (CLI-34 to CLI-37)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .agreement import TRUST, settle
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .conversation import Conversation
from .person import Person
from .render import Output
from .run import FAILURE_EXIT, fill_descriptors, run_to_end, warnings_to
from .serve import CONFIG

if TYPE_CHECKING:
    from ..apps.coordinator import Coordinator
    from ..apps.host.llm.service import LLMService
    from ..apps.host.starting import HostParts

_MAX_CHARACTERS = 32_768
_UNATTENDED_EXIT = 5


def _ask(line: CommandLine) -> int:
    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    if output.out is None:
        return output.write(b"")  # before a tool does work that nobody can read of
    fill_descriptors()
    question = _question(line)
    try:
        parts = _parts(line)
        assert parts.servers is not None  # there was no problem
        settle(parts.servers.waiting, "ask", trusts=TRUST in line.options)
        for note in parts.environment.notes:
            output.warning(note)
        with warnings_to(output):
            return run_to_end(lambda: _answer(parts, question, output))
    except MissingExtraError as error:
        from .host import host_extras

        raise error.also(*host_extras(line)) from None


def _question(line: CommandLine) -> str:
    """Return the question of the command line, or of stdin."""
    text = " ".join(line.positional)
    if not text and sys.stdin is not None:
        if sys.stdin.isatty():
            raise CommandLineError("ask needs a QUESTION")
        text = sys.stdin.buffer.read(4 * _MAX_CHARACTERS + 1).decode("utf-8", "replace")
    text = text.strip()
    if not 0 < len(text) <= _MAX_CHARACTERS:
        raise CommandLineError(f"a QUESTION has 1 to {_MAX_CHARACTERS} characters")
    return text.encode("utf-8", "replace").decode()


def _parts(line: CommandLine) -> HostParts:
    """Return the model and the servers, as the chat host has them.

    Raises:
        UsageError: lists every problem, and what to write.
    """
    from ..apps.host.environment import HostEnvironment
    from ..apps.host.settings import SECTION, HostSettings
    from ..apps.host.starting import HostOptions, read_parts
    from .demo_tools import showing_server

    settings: dict[str, Any] = {}
    if "--servers" in line.options:
        settings["servers"] = line.option("--servers")
    if "--yes" in line.options:
        settings["approve_all"] = True
    options = HostOptions(
        overrides={"host": settings} if settings else {},
        config=line.option("--config"),
        model=line.option("--model"),
    )

    def demo() -> Any:
        server = showing_server({SECTION: HostSettings})  # the seed's variables set it
        server.override("logging", level="error")
        return server

    return read_parts(options, HostEnvironment(), demo)


async def _answer(parts: HostParts, question: str, output: Output) -> int:
    """Let the host answer; return the exit code."""
    from ..apps.host import texts
    from ..apps.host.orchestrator import ConversationOrchestrator, MemoryHistories

    llm = parts.llm
    assert llm is not None  # there was no problem
    await llm.initialize()
    try:
        async with parts.coordinator() as coordinator:
            _warn_of_servers(coordinator, output)
            total, most = len(coordinator.tools), llm.max_tools
            if most is not None and total > most:
                output.warning(texts.too_many_tools(total, most))
            orchestrator = ConversationOrchestrator(
                llm, coordinator, MemoryHistories(), parts.turns
            )
            conversation = Conversation(orchestrator, output, Person())
            await conversation.take_turn(question)
            for note in llm.notes:
                output.warning(note)
            _warn_of_tools(coordinator, llm, output)
    finally:
        await llm.close()
    return _exit_code(conversation, output, llm.label)


def _warn_of_servers(coordinator: Coordinator, output: Output) -> None:
    for server, status in coordinator.states.items():
        if status.reason is not None:
            output.warning(f"server {server!r} is {status.state}: {status.reason}")


def _warn_of_tools(coordinator: Coordinator, llm: LLMService, output: Output) -> None:
    """Name the tools that the model's provider did not take as they are (LLM-114)."""
    from ..apps.host.llm.service import ModelTool

    for entry in coordinator.tools:
        notes = llm.tool_notes(ModelTool.of(entry))
        if notes:
            output.warning(f"{entry.qualified_name}, for the model: {'; '.join(notes)}")


def _exit_code(conversation: Conversation, output: Output, model: str) -> int:
    """Print what is left to say; return the exit code (CLI-37)."""
    if conversation.exit_code:
        return conversation.exit_code
    transcript = conversation.transcript
    if transcript.end.get("state") != "finished":
        code = transcript.end.get("code", "STOPPED")
        message = transcript.end.get("message", "the turn was stopped")
        output.error({"code": code, "message": message}, message)
        return 1 if code == "INTERNAL" else FAILURE_EXIT
    if conversation.notice and not conversation.unapproved:
        output.error({"code": "NO_ANSWER", "message": conversation.notice}, conversation.notice)
        return FAILURE_EXIT
    written = output.result(transcript.to_json(model), ()) if output.as_json else 0
    if conversation.unapproved and not written:
        tools = ", ".join(dict.fromkeys(conversation.unapproved))
        message = (
            f"not called, since nobody is there who could approve it: {tools}; allow it with"
            " --yes, or with alwaysAllow or trust of its server in mcp.json"
        )
        output.error({"code": "UNATTENDED", "message": message}, message)
        return _UNATTENDED_EXIT
    return written


ASK = CliCommand(
    "ask",
    "ask a model that uses your servers",
    _ask,
    (Argument("QUESTION", "in words; without it, it is read from stdin", count="*"),),
    {
        "options": (
            Option(
                "--servers",
                "the servers; by default mcp.json, else the built-in demo server",
                "FILE",
                FILES,
            ),
            Option(
                "--model",
                "the model, such as openai:gpt-5-mini or gemini:gemini-flash-latest",
                "PROVIDER:NAME",
            ),
            Option("--yes", "call tools without asking"),
            Option(TRUST, "run the servers of this folder's mcp.json without asking"),
            CONFIG,
            Option("--json", "print one JSON object: text, calls, usage"),
        )
    },
    usage_exit=2,
    about="""\
A language model answers, and uses the tools of the servers in mcp.json. Before it calls a tool you
are asked, unless its server's entry has "alwaysAllow" with its name, or "trust": true and the tool
says that it only reads. Without a terminal other calls need --yes.

The answer goes to stdout, all else to stderr. The model is chosen as `foundation-rt host` chooses
it: by a key in the environment or in .env; without a key, QUESTION is a command such as
/demo:echo message=hi.""",
    notes="""\
examples:
  foundation-rt ask "Which files changed today?"
  foundation-rt ask --servers mcp.json --yes "Summarise the newest issue"
  git diff | foundation-rt ask

exit codes: 0; 1 an error of the host; 2 the command line or the configuration is wrong; 3 the model
cannot be reached, or has not answered to the end; 4 stdout cannot be written; 5 a call needed an
approval, and nobody was there; 130 interrupted""",
)
