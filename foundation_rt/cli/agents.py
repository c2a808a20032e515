"""The command `foundation-rt agents`: an operator at a ledger of agents (CLI-58)."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from attrs import define, evolve

from ..base.config.types import POSTGRES_SCHEMES
from ..errors import UsageError
from .args import Argument, CliCommand, CommandLine, CommandLineError, Option
from .render import Heading, Json, Output, Page, Paragraph, Part, Table
from .serve import CONFIG
from .targets import JSON

if TYPE_CHECKING:
    from ..agents.ledger.administration import AgentSummary, Changed, RequestQuery
    from ..agents.ledger.operator import LedgerOperator
    from ..agents.ledger.schedules import Schedule
    from ..agents.ledger.types import RequestRecord
    from ..agents.persistence import AACPPersistenceAdapter
    from ..base.config.settings import ServerConfig

_STATES = ("SENT", "HELD", "DELAYED", "RECEIVED", "CLAIMED", "COMPLETED", "FAILED")
_REFUSED_EXIT = 1
_UNREACHABLE_EXIT = 3
_MAX_IDS = 1_000
_DEFAULT_LIMIT = 100
_MAX_REASON = 500
_MAX_SECONDS = 10**10

Result = TypeVar("Result")


# -- the ledger -----------------------------------------------------------------------------------


@define(eq=False)
class _Ledger:
    """An open ledger, and the time of its clock when it was opened."""

    store: AACPPersistenceAdapter
    operator: LedgerOperator
    now_ms: int
    ttl_ms: int


def _at_ledger(line: CommandLine, work: Callable[[_Ledger], Awaitable[Result]]) -> Result:
    """Open the ledger, do the work, close it; audit records go to stderr.

    Raises:
        UsageError: there can be no such ledger.
        StoreError: it cannot be reached.
    """
    from ..agents.ledger.operator import LedgerOperator
    from ..agents.ledger.setup import check_settings, make_store
    from ..base.clock import SystemClock
    from ..base.ids import UuidGenerator
    from ..base.logs.logger import StderrSink, StructuredLogger
    from ..base.logs.redaction import Redactor
    from .run import run_to_end

    config = _configured(line)
    check_settings(config.aacp)
    sink = StderrSink()
    logger = StructuredLogger(sink, SystemClock(), "warn", Redactor(config.logging.redact_keys))
    store = make_store(config.aacp, logger, None)

    async def perform() -> Result:
        await store.open()
        try:
            now_ms = await store.read_time() or 0
            operator = LedgerOperator(store, logger, UuidGenerator().run_id, lambda: now_ms)
            return await work(_Ledger(store, operator, now_ms, config.aacp.default_ttl_ms))
        finally:
            await store.close()

    try:
        return run_to_end(perform)
    finally:
        sink.close(1.0)


def _configured(line: CommandLine) -> ServerConfig:
    """Return the configuration, with the ledger of `--store` and without a transport."""
    from ..base.config.loading import load_config

    config = load_config(file=line.option("--config"), environ=os.environ)
    store = line.option("--store")
    if store is None:
        store = config.aacp.store
    if store == "memory":
        raise UsageError("a ledger in memory is in its process only: name one with --store")
    scheme, _, path = store.partition(":")
    if scheme not in ("sqlite", *POSTGRES_SCHEMES):
        # Not repeated: it may be a URL with a password.
        raise CommandLineError("--store is sqlite:PATH or postgresql://...")
    if scheme == "sqlite" and not Path(path).exists():
        raise UsageError(f"there is no ledger {path}: name the file of one")
    return evolve(config, aacp=evolve(config.aacp, store=store, transport="none"))


# -- list and show --------------------------------------------------------------------------------


def _list(line: CommandLine, output: Output) -> int:
    from ..agents.ledger.operator import show_agent, show_outline

    limit = line.number("--limit") or _DEFAULT_LIMIT
    age_s = line.number("--older-than")
    filters = ("--agent", "--state", "--older-than", "--after")
    is_whole = not any(option in line.options for option in filters)

    async def work(ledger: _Ledger) -> tuple[list[AgentSummary], list[RequestRecord], int]:
        found = await ledger.store.summarize_agents("", limit) if is_whole else []
        query = await _query(ledger, line, limit, age_s)
        return found, await ledger.store.list_requests(query), ledger.now_ms

    found, records, now_ms = _at_ledger(line, work)
    following = records[-1].request_id if len(records) == limit else None
    data: dict[str, Any] = {"requests": [*map(show_outline, records)], "next": following}
    page: list[Part] = []
    if is_whole:
        data["agents"] = [show_agent(each) for each in found]
        page += _agents_page(found, now_ms)
    page += [*_requests_page(records, now_ms), *_more(following)]
    return output.result(data, page)


async def _query(ledger: _Ledger, line: CommandLine, limit: int, age_s: int | None) -> RequestQuery:
    from ..agents.ledger.administration import PAGE_START, RequestQuery, key_of
    from ..agents.ledger.types import RequestState

    last, after = line.option("--after"), PAGE_START
    if last is not None:
        record = await ledger.store.get_request_record(last)
        if record is None:
            raise UsageError("--after: the ledger has no request of this id, or not any more")
        after = key_of(record)
    states = [RequestState(each) for each in line.options.get("--state", ())]
    before_ms = None if age_s is None else ledger.now_ms - age_s * 1000 + 1
    return RequestQuery(line.option("--agent"), states, before_ms, None, after, limit)


def _show(line: CommandLine, output: Output) -> int:
    from ..agents.ledger.operator import show_request

    [request_id] = line.positional
    record = _at_ledger(line, lambda ledger: ledger.store.get_request_record(request_id))
    if record is None:
        raise UsageError("the ledger has no request of this id, or not any more")
    data = show_request(record)
    values = [(name, data[name]) for name in ("payload", "result", "error")]
    shown = {name: value for name, value in values if value is not None}
    facts = {name: value for name, value in data.items() if name not in dict(values)}
    rows = [(name, str(value)) for name, value in facts.items() if value is not None]
    page: list[Part] = [Heading(record.request_id), Table(rows)]
    for name, value in shown.items():
        page += [Heading(name.upper()), Json(value)]
    return output.result(data, page)


# -- cancel, requeue and purge --------------------------------------------------------------------


def _cancel(line: CommandLine, output: Output) -> int:
    ids = _ids(line)
    reason = _reason(line)
    question = f"Cancel {_counted(ids, 'request')}?"
    return _change(line, output, question, ids, lambda ledger: ledger.operator.cancel(ids, reason))


def _requeue(line: CommandLine, output: Output) -> int:
    ids = _ids(line)
    reason = _reason(line)
    if reason is None:
        raise CommandLineError("requeue needs --reason TEXT, for the audit record")
    question = f"Have {_counted(ids, 'request')} executed again?"

    def requeue(ledger: _Ledger) -> Awaitable[list[Changed]]:
        return ledger.operator.requeue(ids, reason, ledger.ttl_ms)

    return _change(line, output, question, ids, requeue)


def _ids(line: CommandLine) -> list[str]:
    """Return the ids of a command line."""
    if len(line.positional) > _MAX_IDS:
        raise CommandLineError(f"at most {_MAX_IDS:,} are changed at once")
    return line.positional


def _reason(line: CommandLine) -> str | None:
    reason = line.option("--reason")
    if reason is not None and not 1 <= len(reason.strip()) <= _MAX_REASON:
        raise CommandLineError(f"--reason is a text of 1 to {_MAX_REASON} characters")
    return reason


def _counted(names: Sequence[str], kind: str) -> str:
    return f"{kind} {names[0]}" if len(names) == 1 else f"{len(names)} {kind}s"


def _change(
    line: CommandLine,
    output: Output,
    question: str,
    ids: Sequence[str],
    work: Callable[[_Ledger], Awaitable[list[Changed]]],
) -> int:
    from ..agents.ledger.administration import Verdict
    from ..agents.ledger.operator import show_change

    if not _is_agreed(line, output, question):
        return _REFUSED_EXIT
    answers = _at_ledger(line, work)
    changes = [
        show_change(request_id, changed) for request_id, changed in zip(ids, answers, strict=True)
    ]
    rows = [("REQUEST", "STATE", "REFUSED BECAUSE")]
    rows += [
        (str(each["requestId"]), each["state"] or "", each["refusal"] or "") for each in changes
    ]
    code = output.result({"requests": changes}, [Table(rows, has_head=True)])
    is_done = all(changed.verdict is Verdict.DONE for changed in answers)
    return code or (0 if is_done else _REFUSED_EXIT)


def _purge(line: CommandLine, output: Output) -> int:
    if not _is_agreed(line, output, "Delete what has expired?"):
        return _REFUSED_EXIT
    purged = _at_ledger(line, lambda ledger: ledger.operator.purge())
    return output.result({"purged": purged}, [Paragraph(f"{purged:,} records deleted")])


def _is_agreed(line: CommandLine, output: Output, question: str) -> bool:
    """Ask the person at the terminal, unless `--yes` is given; without one, it is not agreed."""
    from ..client.safe_text import printable_line
    from .person import confirm

    if "--yes" in line.options or confirm(f"{printable_line(question)} [y/N] "):
        return True
    text = "nothing was changed; --yes changes it without asking"
    output.error({"code": "NOT_CONFIRMED", "message": text}, text)
    return False


# -- schedules ------------------------------------------------------------------------------------


def _schedules(line: CommandLine, output: Output) -> int:
    from ..agents.ledger.operator import show_time

    limit = line.number("--limit") or _DEFAULT_LIMIT
    after = line.option("--after") or ""
    found = _at_ledger(line, lambda ledger: ledger.store.list_schedules(after, limit))
    following = found[-1].name if len(found) == limit else None
    data = {"schedules": [*map(_schedule, found)], "next": following}
    rows = [("SCHEDULE", "WHEN", "ZONE", "AGENT", "LAST RUN", "NEXT RUN")]
    rows += [
        (
            each.name,
            each.expression,
            each.timezone,
            each.target_agent_id,
            show_time(each.last_run_at_ms) or "",
            show_time(each.next_run_at_ms) or "",
        )
        for each in found
    ]
    page = [Heading("SCHEDULES", str(len(found))), Table(rows, has_head=True), *_more(following)]
    return output.result(data, page)


def _unschedule(line: CommandLine, output: Output) -> int:
    from ..agents.ledger.operator import NO_SCHEDULE

    names, reason = _ids(line), _reason(line)
    if not _is_agreed(line, output, f"Remove {_counted(names, 'schedule')}?"):
        return _REFUSED_EXIT
    answers = _at_ledger(line, lambda ledger: ledger.operator.unschedule(names, reason))
    refusals = [None if was_there else NO_SCHEDULE for was_there in answers]
    changes = [
        {"schedule": name, "removed": refusal is None, "refusal": refusal}
        for name, refusal in zip(names, refusals, strict=True)
    ]
    rows = [("SCHEDULE", "RESULT")]
    rows += [(name, refusal or "removed") for name, refusal in zip(names, refusals, strict=True)]
    code = output.result({"schedules": changes}, [Table(rows, has_head=True)])
    return code or (0 if all(answers) else _REFUSED_EXIT)


def _schedule(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule for programs."""
    from ..agents.ledger.operator import show_time

    return {
        "name": schedule.name,
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "targetAgentId": schedule.target_agent_id,
        "payload": orjson.loads(schedule.payload),
        "missed": str(schedule.missed),
        "ttlMs": schedule.ttl_ms,
        "createdAt": show_time(schedule.created_at_ms),
        "lastRunAt": show_time(schedule.last_run_at_ms),
        "nextRunAt": show_time(schedule.next_run_at_ms),
    }


# -- what is shown --------------------------------------------------------------------------------


def _agents_page(found: Sequence[AgentSummary], now_ms: int) -> Page:
    head = ("AGENT", "WAITING", "DELAYED", "CLAIMED", "COMPLETED", "FAILED", "SENT", "OLDEST")
    rows = [head]
    for each in found:
        counts = {str(state): count for state, count in each.counts.items()}
        numbers = [counts.get(name, 0) for name in head[2:-1]]
        waiting = counts.get("RECEIVED", 0) + counts.get("HELD", 0)
        oldest = "" if each.oldest_at_ms is None else _age(now_ms - each.oldest_at_ms)
        rows.append((each.agent_id, *map(str, (waiting, *numbers)), oldest))  # type: ignore[arg-type]
    return [Heading("AGENTS", str(len(found))), Table(rows, has_head=True)]


def _requests_page(records: Sequence[RequestRecord], now_ms: int) -> Page:
    rows = [("REQUEST", "AGENT", "STATE", "AGE", "ERROR")]
    for each in records:
        error = "" if each.error is None else orjson.loads(each.error).get("message", "")
        age = _age(now_ms - each.created_at_ms)
        rows.append((each.request_id, each.target_agent_id, str(each.state), age, error))
    return [Heading("REQUESTS", str(len(records))), Table(rows, has_head=True)]


def _more(following: str | None) -> Page:
    """Return how the next page is asked for, if there may be one."""
    return [] if following is None else [Paragraph(f"There may be more: --after {following}")]


def _age(ms: int) -> str:
    """Return an age in the largest unit of which there are two."""
    seconds = max(ms, 0) // 1000
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


# -- the commands ---------------------------------------------------------------------------------

_OF_EVERY = {
    "options of every command": (
        Option("--store", "sqlite:PATH or postgresql://...; by default aacp.store", "DSN"),
        CONFIG,
        JSON,
    )
}
_LIMIT = Option(
    "--limit",
    f"show at most N of them, by default {_DEFAULT_LIMIT}, up to {_MAX_IDS}",
    "N",
    range(1, _MAX_IDS + 1),
)
_YES = Option("--yes", "do it without asking")
_OF_CHANGES = {
    "options": (Option("--reason", "why, for the audit record on stderr", "TEXT"), _YES),
    **_OF_EVERY,
}
_ID = Argument("ID", "the id of a request", count="+")


def _command(
    name: str,
    summary: str,
    perform: Callable[[CommandLine, Output], int],
    arguments: Sequence[Argument],
    options: Mapping[str, Sequence[Option]],
) -> CliCommand:
    return CliCommand(f"agents {name}", summary, partial(_at_output, perform), arguments, options)


def _at_output(perform: Callable[[CommandLine, Output], int], line: CommandLine) -> int:
    from ..agents.persistence import StoreError

    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    try:
        return perform(line, output)
    except StoreError as error:
        output.error({"code": "LEDGER", "message": str(error)}, f"the ledger: {error}")
        return _UNREACHABLE_EXIT


AGENTS = CliCommand(
    "agents",
    "look into a ledger of agents, and change what is in it",
    about="Look into a ledger of agents, and change what is in it, also while servers use it.",
    notes="""\
examples:
  foundation-rt agents list --store sqlite:/var/lib/office.db
  foundation-rt agents list --agent clerk --state FAILED --config office.toml
  foundation-rt agents requeue order-17 --reason 'the printer has paper'

exit codes: 0; 1 a request was refused, or nobody agreed; 2 the command line is wrong; 3 the ledger
cannot be reached; 4 stdout cannot be written; 130 interrupted""",
    within=(
        _command(
            "list",
            "list requests, the oldest first; without a filter, agents too",
            _list,
            (),
            {
                "options": (
                    Option("--agent", "only requests to this agent", "AGENT"),
                    Option(
                        "--state", "only requests in this state; may be repeated", "STATE", _STATES
                    ),
                    Option(
                        "--older-than",
                        "only requests made at least S seconds ago",
                        "S",
                        range(_MAX_SECONDS + 1),
                    ),
                    Option("--after", "the page behind this request", "ID"),
                    _LIMIT,
                ),
                **_OF_EVERY,
            },
        ),
        _command(
            "show",
            "show a request with its payload and outcome",
            _show,
            (Argument("ID", "the id of a request"),),
            _OF_EVERY,
        ),
        _command(
            "cancel",
            "make requests without an outcome FAILED, also while they run",
            _cancel,
            (_ID,),
            _OF_CHANGES,
        ),
        _command(
            "requeue", "have requests that FAILED executed again", _requeue, (_ID,), _OF_CHANGES
        ),
        _command("purge", "delete what has expired", _purge, (), {"options": (_YES,), **_OF_EVERY}),
        _command(
            "schedules",
            "list schedules, with their last and next runs",
            _schedules,
            (),
            {
                "options": (Option("--after", "the page behind this schedule", "NAME"), _LIMIT),
                **_OF_EVERY,
            },
        ),
        _command(
            "unschedule",
            "remove schedules; a program that declares one adds it again",
            _unschedule,
            (Argument("NAME", "the name of a schedule", count="+"),),
            _OF_CHANGES,
        ),
    ),
)
