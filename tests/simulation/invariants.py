"""The invariants of AACP, and the witness that checks them after every event.

The witness keeps its own account of everything that was ever entered, received, claimed, executed,
recorded and answered, made from the arguments and results of operations, and compares every new
event to it. It looks only at the records of the event, so that a run stays fast; at the end it
looks at everything. The invariants:

* numbers of a link have no gaps, and one number means one message for ever (AACP-10);
* an acknowledgement is exactly what was received without a gap, never goes back, and nothing says
  it before the ledger has it (AACP-11, AACP-17);
* what was received or entered is in the ledger until it expires (AACP-02);
* a request is entered once, has one live claim, and one outcome: of the newest claim, made by a
  real execution, and never changed (AACP-01, AACP-03, AACP-12, AACP-21 to 23);
* executions begin in the order of the numbers, and those whose results are recorded do so always,
  whoever lost a claim; a void message is not executed (AACP-04, AACP-14);
* what a caller is told, and what a RESPONSE says, is the recorded outcome of that very request
  (AACP-12, AACP-16);
* what a handler wrote is there, once, if its outcome is COMPLETED, and only then; no request is
  FAILED because the database stalled (AACP-07).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

import orjson
from attrs import define, field

from foundation_rt.agents.ledger.administration import Changed, Verdict
from foundation_rt.agents.ledger.agent_limits import NO_LIMITS, AgentLimits
from foundation_rt.agents.ledger.effects import Operation, Persist
from foundation_rt.agents.ledger.operations import NodeSettings
from foundation_rt.agents.ledger.rules import conflict_error, response_payload
from foundation_rt.agents.ledger.schedules import Advance, EnteredRuns
from foundation_rt.agents.ledger.session_manager import LinkState
from foundation_rt.agents.ledger.types import (
    LOCKED,
    TERMINAL,
    Appended,
    Claim,
    ClaimCompletion,
    Claimed,
    Completed,
    Due,
    EntryVerdict,
    Envelope,
    IncomingEnvelope,
    Link,
    Locked,
    MessageRecord,
    MessageState,
    MessageType,
    OutgoingMessage,
    Queued,
    Received,
    Release,
    RequestRecord,
    RequestState,
)

from .accounts import (
    ArrivedAccount,
    Message,
    Outcome,
    RequestAccount,
    SentAccount,
    Violation,
)
from .database import WriteFailedError
from .disk import Disk
from .faults import Fault


@define(eq=False, repr=False)
class Witness:
    """Checks every event; raises `Violation`.

    Args:
        count: called for messages that expired or were given up.
        is_alive: tells whether the process that claims under this name still runs.
        max_starts: how often an execution may be begun, at least (AACP-46).
        limits: of the agents that have some.
        time_ms: returns the right time.
    """

    count: Callable[[Fault], None]
    is_alive: Callable[[str], bool]
    max_starts: int
    limits: Mapping[str, AgentLimits]
    time_ms: Callable[[], int]
    # When claims were made, by number of the disk and agent.
    _starts: dict[tuple[int, str], list[int]] = field(factory=dict, init=False)
    # By link and by the incarnation of the ledger of its source; then also by that of its target.
    _sent: dict[tuple[Link, int], SentAccount] = field(factory=dict, init=False)
    _arrived: dict[tuple[Link, int, int], ArrivedAccount] = field(factory=dict, init=False)
    # The newest incarnation heard of, by link and by the incarnation of the ledger of its target.
    _newest: dict[tuple[Link, int], int] = field(factory=dict, init=False)
    # Where that came in which is to be executed, by number of the disk and id.
    _received_on: dict[tuple[int, str], ArrivedAccount] = field(factory=dict, init=False)
    # By number of the disk and id.
    requests: dict[tuple[int, str], RequestAccount] = field(factory=dict, init=False)
    _entered: dict[tuple[int, str], int] = field(factory=dict, init=False)
    # All outcomes that a request ever had, by id: more than one only after it had expired.
    _outcomes: dict[str, list[Outcome]] = field(factory=dict, init=False)
    # Claims that may be live, by number of the disk and agent, then by request id.
    _live: dict[tuple[int, str], dict[str, RequestAccount]] = field(factory=dict, init=False)
    _latest_ms: int = field(default=0, init=False)  # by the clock that is furthest ahead
    taken_over: set[tuple[int, str]] = field(factory=set, init=False)
    """Queues, by disk and agent, out of which a lapsed claim was taken from a process that runs: it
    may execute what it has not heard that it lost."""
    _expired: set[tuple[int, str]] = field(factory=set, init=False)
    reused: set[str] = field(factory=set, init=False)
    """Ids that came again after their lifetime: nothing is promised of them (AACP-01)."""
    contested: set[str] = field(factory=set, init=False)
    """Ids under which different requests were made."""
    # The numbers of executions that had something written with their outcome.
    _writers: set[int] = field(factory=set, init=False)
    _void: set[tuple[Link, int, int]] = field(factory=set, init=False)
    # Requests with options, whose order is not promised, by number of the disk and id, with the
    # time before which they are not claimed.
    _unordered: dict[tuple[int, str], int] = field(factory=dict, init=False)
    # The runs of schedules, by the incarnation of the ledger and id.
    _runs: set[tuple[int, str]] = field(factory=set, init=False)
    # Requests that a policy of their own has executed again, by number of the disk and id.
    _own_retries: set[tuple[int, str]] = field(factory=set, init=False)

    def sent_on(self, link: Link, incarnation: int) -> SentAccount:
        """Return the account of a link in the ledger of its source."""
        account = self._sent.get((link, incarnation))
        if account is None:
            account = self._sent[link, incarnation] = SentAccount()
        return account

    def arrived_on(self, link: Link, incarnation: int, at: int) -> ArrivedAccount:
        """Return the account of a link in the ledger of its target, whose incarnation is `at`."""
        account = self._arrived.get((link, incarnation, at))
        if account is None:
            sent = self.sent_on(link, incarnation)
            account = self._arrived[link, incarnation, at] = ArrivedAccount(sent)
        return account

    def is_void(self, link: Link, incarnation: int, seq: int) -> bool:
        """Return whether a message became a tombstone in the ledger of its source."""
        return (link, incarnation, seq) in self._void

    def asked(self, settings: NodeSettings, off_ms: int, persist: Persist) -> None:
        """Check that a process whose clock is far off claims and purges nothing (AACP-94)."""
        most_ms = settings.max_clock_off_ms
        operation = persist.operation
        barred = operation in (Operation.CLAIM, Operation.PURGE) or (
            operation is Operation.APPEND and persist.arguments[2].wanted
        )
        if barred and most_ms is not None and abs(off_ms) > most_ms:
            raise Violation("clock", f"{settings.owner}: {operation} though {off_ms} ms off")

    def performed(
        self, disk: Disk, operation: Operation, arguments: tuple[Any, ...], result: Any
    ) -> None:
        """Check an operation that a ledger performed."""
        check = _CHECKS.get(operation)
        if check is not None:
            check(self, disk, arguments, result)

    # -- entering and receiving ---------------------------------------------------------------

    def appended(self, disk: Disk, arguments: tuple[Any, ...], results: list[Appended]) -> None:
        """Check that numbers are given out in order, and once for each request."""
        messages: list[OutgoingMessage] = arguments[0]
        for outgoing, appended in zip(messages, results, strict=True):
            if appended.verdict is EntryVerdict.NEW:
                link = (outgoing.source_agent_id, outgoing.target_agent_id)
                content = (outgoing.message_type, outgoing.request_id, outgoing.payload)
                self._numbered(disk, link, appended.seq, content)
                if outgoing.local:
                    arrived = self.arrived_on(link, disk.incarnation, disk.incarnation)
                    arrived.arrive(appended.seq)
                    self._newest[link, disk.incarnation] = disk.incarnation
                    self._received_on[disk.number, outgoing.key] = arrived
                if outgoing.options is not None:
                    not_before_ms = outgoing.options.not_before_ms or 0
                    self._unordered[disk.number, outgoing.key] = not_before_ms
                if outgoing.local or outgoing.message_type is MessageType.REQUEST:
                    self._enter(disk, outgoing.key, outgoing.expires_at_ms)
            elif appended.existing is not None:
                same = appended.existing.digest == outgoing.digest
                if same is not (appended.verdict is EntryVerdict.DUPLICATE):
                    raise Violation("identity", f"{outgoing.key} is a {appended.verdict}")
        made = [each.claim for each in results if each.claim is not None]
        if made:
            _, now_ms, claiming = arguments
            made.sort(key=lambda claim: -claim.priority)
            self.claimed(disk, (claiming, now_ms), Claimed(made))

    def entered_runs(
        self, disk: Disk, arguments: tuple[Any, ...], results: list[EnteredRuns]
    ) -> None:
        """Check that each run of a schedule is entered once, also after its record is gone."""
        advances: list[Advance] = arguments[0]
        for advance, answers in zip(advances, results, strict=True):
            if answers is None:
                continue
            messages = [message for _, message in advance.runs]
            self.appended(disk, (messages,), list(answers))
            for message, appended in zip(messages, answers, strict=True):
                place = (disk.incarnation, message.key)
                if appended.verdict is EntryVerdict.NEW and place in self._runs:
                    raise Violation("schedule", f"{message.key} is entered twice")
                self._runs.add(place)

    def all_entered(self, disk: Disk, runs: Iterable[str]) -> None:
        """Check at the end that no run of a schedule was left out."""
        for each in runs:
            if (disk.incarnation, each) not in self._runs:
                raise Violation("schedule", f"{each} was never entered")

    def _numbered(self, disk: Disk, link: Link, seq: int, content: Message) -> None:
        account = self.sent_on(link, disk.incarnation)
        account.messages.append(content)
        if seq != len(account.messages) or disk.links[link].last_seq < seq:
            raise Violation("gapless", f"{link} got number {seq} as its {len(account.messages)}.")

    def _enter(self, disk: Disk, key: str, expires_at_ms: int) -> None:
        """Record that a request was entered: it must be new."""
        if (disk.number, key) in self._entered:
            raise Violation("deduplication", f"{key} was entered twice")
        if (disk.number, key) in self._expired:
            self.reused.add(key)
        self._entered[disk.number, key] = expires_at_ms

    def received(self, disk: Disk, arguments: tuple[Any, ...], received: Received) -> None:
        """Check that acknowledged messages are there, and each was taken once."""
        arrivals: list[IncomingEnvelope] = arguments[0]
        new = sum(self._received(disk, incoming.envelope) for incoming in arrivals)
        if new != len(received.accepted):
            raise Violation("deduplication", f"{len(received.accepted)} taken, {new} were new")
        for link, ack in received.acks.items():
            there = self.arrived_on(
                link, received.incarnation[link], disk.incarnation
            ).received_up_to
            if ack != there:
                raise Violation("acknowledgement", f"{link} acknowledges {ack}, has {there}")
        for message in received.responses:
            self._answered(disk, message)

    def _received(self, disk: Disk, envelope: Envelope) -> bool:
        """Return whether an envelope carried a message that was new."""
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None:
            self._acknowledged(disk, (link[1], link[0]))
        if envelope.seq == 0 or envelope.incarnation < self._newest.get(
            (link, disk.incarnation), 0
        ):
            return False
        self._newest[link, disk.incarnation] = envelope.incarnation
        arrived = self.arrived_on(link, envelope.incarnation, disk.incarnation)
        if not arrived.arrive(envelope.seq, envelope.low_watermark):
            return False
        if envelope.tombstone:
            arrived.dead.add(envelope.seq)
            return False
        self._taken_in(disk, envelope, arrived)
        return True

    def _acknowledged(self, disk: Disk, link: Link) -> None:
        state = disk.links.get(link)
        if state is None:
            return
        account = self.sent_on(link, disk.incarnation)
        if not account.acked <= state.acked <= account.covered:
            raise Violation(
                "acknowledgement",
                f"{link} went from {account.acked} to {state.acked}, had {account.covered}",
            )
        account.acked = state.acked

    def _taken_in(self, disk: Disk, envelope: Envelope, arrived: ArrivedAccount) -> None:
        if envelope.message_type is MessageType.RESPONSE:
            return
        key = envelope.request_id or envelope.message_id
        record = disk.requests.get(key)
        if record is None:
            raise Violation("durability", f"{key} was received and is not in the ledger")
        place = (disk.number, key)
        if place in self._expired and place not in self._entered:
            self.reused.add(key)
        self._entered[place] = record.expires_at_ms
        if envelope.options is not None:
            self._unordered[place] = record.not_before_ms or 0
        if record.seq == envelope.seq:
            self._received_on.setdefault(place, arrived)

    # -- executing ----------------------------------------------------------------------------

    def claimed(self, disk: Disk, arguments: tuple[Any, ...], claimed: Claimed) -> None:
        """Check that no claim is of, or behind, a request that another process has."""
        claiming, now_ms = arguments
        process = claiming.owner.partition("+")[0]
        self._latest_ms = max(self._latest_ms, now_ms)
        for claim in claimed.claims:
            account = self._request(disk, claim)
            if claim.workers == 1 or account.lease_until_ms is None:  # else it is taken over
                self._check_turn(disk, claim, now_ms)
            self._check_rate(disk, claim)
            self._check_claim(disk, claim, account, process, now_ms)
            if account.lease_until_ms is not None and self._is_another(account.process, process):
                self.taken_over.add((disk.number, claim.target_agent_id))
            account.epoch, account.process = claim.epoch, process
            account.lease_until_ms = claiming.lease_until_ms
            queue = self._live.setdefault((disk.number, claim.target_agent_id), {})
            for other in queue.values() if claim.workers == 1 else ():
                # a takeover has given them back (AACP-166)
                if other.process != process and not _is_live(other, now_ms):
                    other.lease_until_ms = None
            queue[claim.request_id] = account

    def _check_turn(self, disk: Disk, claim: Claim, now_ms: int) -> None:
        """Check that a claim is not early, and not of a lower priority than others (AACP-122)."""
        if self._unordered.get((disk.number, claim.request_id), 0) > self._latest_ms:
            raise Violation("delay", f"{claim.request_id} is claimed before its time")
        levels = disk.ledger.waiting.get(claim.target_agent_id, {})
        for priority in levels:
            for record in levels[priority].values() if priority > claim.priority else ():
                if record.state is RequestState.RECEIVED and _may_be_claimed(record, now_ms):
                    raise Violation("priority", f"{claim.request_id} before {record.request_id}")

    def _check_rate(self, disk: Disk, claim: Claim) -> None:
        """Check that no more executions begin in any window than the agent may (AACP-191)."""
        limits = self.limits.get(claim.target_agent_id)
        if limits is None or not limits.starts:
            return
        starts = self._starts.setdefault((disk.number, claim.target_agent_id), [])
        starts.append(self.time_ms())
        if len([each for each in starts if each > starts[-1] - limits.window_ms]) > limits.starts:
            raise Violation("rate", f"{claim.request_id} begins too early")

    def queued_delayed(self, disk: Disk, arguments: tuple[Any, ...], queued: Queued) -> None:
        """Record by which time requests may have been queued."""
        self._latest_ms = max(self._latest_ms, arguments[0])

    def _is_another(self, before: str | None, process: str) -> bool:
        """Return whether a claim is taken from a process that still runs."""
        return before is not None and before != process and self.is_alive(before)

    def _request(self, disk: Disk, claim: Claim) -> RequestAccount:
        """Return the account of a claimed request, in its present lifetime."""
        key = (disk.number, claim.request_id)
        account = self.requests.get(key)
        if account is None:
            account = self.requests[key] = RequestAccount(claim.expires_at_ms)
        return account

    def _check_claim(
        self, disk: Disk, claim: Claim, account: RequestAccount, process: str, now_ms: int
    ) -> None:
        if account.outcome is not None:
            raise Violation("terminal", f"{claim.request_id} is claimed after its outcome")
        if claim.epoch != account.epoch + 1:
            raise Violation("epochs", f"{claim.request_id}: {account.epoch}, then {claim.epoch}")
        if _is_live(account, now_ms):
            raise Violation("lease", f"{claim.request_id} is claimed although its claim is live")
        queue = self._live.get((disk.number, claim.target_agent_id), {})
        limits = self.limits.get(claim.target_agent_id, NO_LIMITS)
        if claim.workers != limits.workers:
            raise Violation("workers", f"{claim.request_id} is one of {claim.workers}")
        if limits != NO_LIMITS:
            live = [each for each, other in queue.items() if _is_live(other, now_ms)]
            if len(live) >= limits.workers:
                raise Violation("workers", f"{claim.request_id} is claimed beside {live}")
        for request_id, other in queue.items() if limits.workers == 1 else ():
            if not _is_live(other, now_ms) or other.process == process:
                continue
            if _is_before(disk, request_id, claim):
                raise Violation(
                    "one at a time",
                    f"{claim.request_id} is claimed while {other.process} has {request_id}",
                )
        arrived = self._received_on[disk.number, claim.request_id]
        if claim.seq in arrived.dead:
            raise Violation("tombstone", f"{claim.request_id} is claimed and was void")
        if arrived.executed_as.setdefault(claim.seq, claim.request_id) != claim.request_id:
            raise Violation("deduplication", f"number {claim.seq} is claimed under two ids")
        arrived.to_repeat.pop(claim.seq, None)

    def is_live(self, disk: Disk, claim: Claim, now_ms: int) -> bool:
        """Return whether a claim is the newest of its request, and not lapsed."""
        account = self.requests.get((disk.number, claim.request_id))
        return (
            account is not None
            and claim.request_id not in self.reused
            and account.epoch == claim.epoch
            and account.expires_at_ms > self._latest_ms
            and _is_live(account, now_ms)
        )

    def begun(self, disk: Disk, claim: Claim, run: int) -> None:
        """Check that an execution begins in order (AACP-04), unless it expired by some clock."""
        account = self.requests.get((disk.number, claim.request_id))
        if account is None:
            return
        account.runs.add(run)
        arrived = self._received_on[disk.number, claim.request_id]
        if (disk.number, claim.request_id) in self._unordered or claim.seq in arrived.requeued:
            return
        if claim.workers > 1:
            return
        lost = account.epoch != claim.epoch or account.outcome is not None
        if not lost and (disk.number, claim.target_agent_id) not in self.taken_over:
            self._check_order(claim, arrived)
        arrived.begun.add(claim.seq)
        arrived.last_begun = max(arrived.last_begun, claim.seq)

    def _check_order(self, claim: Claim, arrived: ArrivedAccount) -> None:
        for seq, expires_at_ms in arrived.to_repeat.items():
            if seq < claim.seq and expires_at_ms > self._latest_ms:
                raise Violation("order", f"{claim.request_id} overtakes number {seq}")
        first = claim.seq not in arrived.begun
        if first and claim.seq < arrived.last_begun and claim.expires_at_ms > self._latest_ms:
            raise Violation("order", f"{claim.request_id} is executed after {arrived.last_begun}")

    def to_be_repeated(self, disk: Disk, claim: Claim) -> None:
        """Record a temporary failure: requests behind one that still counted have to wait."""
        account = self.requests.get((disk.number, claim.request_id))
        if account is None or account.epoch != claim.epoch or claim.retry is not None:
            return
        if claim.workers > 1:
            return
        if (disk.number, claim.request_id) in self._unordered:
            return
        arrived = self._received_on[disk.number, claim.request_id]
        if claim.seq not in arrived.requeued:  # which is behind others of its link
            arrived.to_repeat[claim.seq] = claim.expires_at_ms

    def completed(
        self, disk: Disk, arguments: tuple[Any, ...], results: list[Completed | Locked]
    ) -> None:
        """Check that an outcome is that of the newest claim, and stays."""
        completions: list[ClaimCompletion] = arguments[0]
        for completion, completed in zip(completions, results, strict=True):
            if completed is LOCKED:  # it is behind one whose write failed
                continue
            account = self.requests.get((disk.number, completion.request_id))
            if completion.in_transaction is not None:
                self._writers.add(_run_of(completion.result))
            if completed.record is not None and account is not None:
                self._recorded(disk, completion, completed.record, account)
                live = self._live[disk.number, completed.record.target_agent_id]
                live.pop(completion.request_id, None)
            if completed.response is not None:
                self._answered(disk, completed.response)
            if not isinstance(completed.failure, WriteFailedError | None):
                raise Violation("stall", f"{completion.request_id}: {completed.failure!r}")
        for completion in completions:  # of which two may be of one request
            account = self.requests.get((disk.number, completion.request_id))
            if account is not None:
                self._check_rows(disk, completion.request_id, account)

    def _check_rows(self, disk: Disk, request_id: str, account: RequestAccount) -> None:
        """Check that the writes of a request agree with its outcome."""
        if request_id in self.reused:
            return
        state, result, _ = account.outcome or (None, None, None)
        expected = {_run_of(result)} & self._writers if state is RequestState.COMPLETED else ()
        rows = disk.rows.get(request_id, [])
        if rows != list(expected):
            raise Violation("effects", f"{request_id} is {state}, and has rows of {rows}")

    def _recorded(
        self,
        disk: Disk,
        completion: ClaimCompletion,
        record: RequestRecord,
        account: RequestAccount,
    ) -> None:
        if completion.epoch != account.epoch:
            raise Violation("fence", f"{record.request_id}: an outcome of an older epoch is taken")
        outcome = _outcome(record)
        if account.outcome is not None:
            if outcome != account.outcome:
                raise Violation("one outcome", f"{record.request_id} has another outcome now")
            return
        made_here = outcome[1] is None or _run_of(outcome[1]) in account.runs
        if not made_here and record.request_id not in self.reused:
            raise Violation("one outcome", f"{record.request_id}: this was never executed")
        if b'"abandoned"' in (record.error or b"") and account.epoch <= self.max_starts:
            raise Violation("abandoned", f"{record.request_id} after {account.epoch - 1} claims")
        account.outcome = outcome
        self._outcomes.setdefault(record.request_id, []).append(outcome)
        runs = account.runs if outcome[1] is None else [_run_of(outcome[1])]
        if len(runs) == 1 and b'"abandoned"' not in (outcome[2] or b""):
            # else it is not known which one has failed
            self._check_recorded_order(disk, record, *runs)

    def _check_recorded_order(self, disk: Disk, record: RequestRecord, run: int) -> None:
        """Check that the executions whose results count began in the order of their link.

        That holds for all, also after a claim was lost to another process (AACP-04).
        """
        place = (disk.number, record.request_id)
        recorded, seq = self._received_on[place].recorded, record.seq
        if place in self._unordered or seq in self._received_on[place].requeued:
            return
        if record.request_id in self.reused:  # the outcome may be that of its last lifetime
            return
        if self.limits.get(record.target_agent_id, NO_LIMITS).workers > 1:
            return
        for other, its_run in recorded.items():
            if (other < seq) is not (its_run < run) and record.expires_at_ms > self._latest_ms:
                raise Violation("recorded order", f"{record.request_id} ran beside {other}")
        recorded[seq] = run

    def _answered(self, disk: Disk, message: MessageRecord) -> None:
        """Check that a RESPONSE has the recorded outcome, or the conflict."""
        link = (message.source_agent_id, message.target_agent_id)
        content = (message.message_type, message.request_id, message.payload)
        self._numbered(disk, link, message.seq, content)
        request_id = message.request_id or ""
        answer = _canonical(message.payload)
        recorded = (response_payload(*each) for each in self._outcomes.get(request_id, ()))
        if answer not in recorded and answer != _conflict(request_id):
            raise Violation("outcome before ledger", f"{request_id} is answered, not recorded")

    def renewed(self, disk: Disk, arguments: tuple[Any, ...], results: list[bool]) -> None:
        """Check that only the newest claim is renewed."""
        claims, lease_until_ms = arguments
        for (request_id, epoch), still_held in zip(claims, results, strict=True):
            if still_held:
                account = self.requests[disk.number, request_id]
                if account.epoch != epoch or account.outcome is not None:
                    raise Violation("lease", f"{request_id} is renewed by an older claim")
                account.lease_until_ms = lease_until_ms

    def released(self, disk: Disk, arguments: tuple[Any, ...], result: None) -> None:
        """Record that claims were given back."""
        releases: list[Release] = arguments[0]
        for release in releases:
            account = self.requests.get((disk.number, release.request_id))
            if account is not None and account.epoch == release.epoch:
                account.lease_until_ms = None
                if release.leaves_queue:
                    self._own_retries.add((disk.number, release.request_id))

    # -- an operator --------------------------------------------------------------------------

    def cancelled(self, disk: Disk, changes: list[Changed]) -> None:
        """Record the outcome of requests that were cancelled: the claim that there was is lost."""
        for record, account, response in self._changed(disk, changes):
            if account.outcome is not None:
                raise Violation("terminal", f"{record.request_id} is cancelled after its outcome")
            account.outcome = _outcome(record)
            self._outcomes.setdefault(record.request_id, []).append(account.outcome)
            if response is not None:
                self._answered(disk, response)

    def requeued(self, disk: Disk, changes: list[Changed]) -> None:
        """Begin a request anew that failed (AACP-112)."""
        for record, account, _ in self._changed(disk, changes):
            if account.outcome is None or account.outcome[0] is not RequestState.FAILED:
                raise Violation("terminal", f"{record.request_id} is requeued and has not failed")
            account.outcome, account.expires_at_ms = None, record.expires_at_ms
            self._entered[disk.number, record.request_id] = record.expires_at_ms
            arrived = self._received_on[disk.number, record.request_id]
            arrived.requeued.add(record.seq)
            place = (disk.number, record.request_id)
            if place in self._unordered:
                self._unordered[place] = 0  # its delay is over

    def _changed(
        self, disk: Disk, changes: list[Changed]
    ) -> Iterator[tuple[RequestRecord, RequestAccount, MessageRecord | None]]:
        for changed in changes:
            record = changed.record
            if changed.verdict is not Verdict.DONE or record is None:
                continue
            place = (disk.number, record.request_id)
            account = self.requests.setdefault(place, RequestAccount(record.expires_at_ms))
            if record.epoch != account.epoch + 1:
                raise Violation("epochs", f"{record.request_id}: no claim of it is fenced off")
            account.epoch, account.lease_until_ms = record.epoch, None
            self._received_on[place].to_repeat.pop(record.seq, None)
            self._live.get((disk.number, record.target_agent_id), {}).pop(record.request_id, None)
            yield record, account, changed.response

    # -- time ---------------------------------------------------------------------------------

    def taken(self, disk: Disk, arguments: tuple[Any, ...], due: Due) -> None:
        """Remember what was given up."""
        now_ms = arguments[0]
        for message in (*due.given_up, *due.messages):
            link = (message.source_agent_id, message.target_agent_id)
            void = message.state is MessageState.TOMBSTONE
            if void and not self.is_void(link, disk.incarnation, message.seq):
                self._void.add((link, disk.incarnation, message.seq))
                expired = message.expires_at_ms <= now_ms
                self.count(Fault.EXPIRY if expired else Fault.GIVEN_UP)

    def purged(self, disk: Disk, arguments: tuple[Any, ...], count: int) -> None:
        """End the lifetime of records that are gone; the same id is then another request."""
        now_ms = arguments[0]
        self._latest_ms = max(self._latest_ms, now_ms)
        if count:
            for key, expires_at_ms in list(self._entered.items()):
                if key[0] == disk.number and expires_at_ms <= now_ms:
                    del self._entered[key]
                    self._expired.add(key)
                    gone = self.requests.pop(key, None)
                    for place, queue in self._live.items():
                        if place[0] == disk.number and queue.get(key[1]) is gone:
                            queue.pop(key[1], None)
                    self._received_on.pop(key, None)

    def lost(self, disk: Disk) -> None:
        """Forget a ledger that was lost, with all that was in it (AACP-19)."""
        number = disk.number
        for table in (self._entered, self.requests, self._received_on):
            for key in [key for key in table if key[0] == number]:
                del table[key]
                self._expired.add(key)
        for queues in (self._live, self._starts):
            for queue in [queue for queue in queues if queue[0] == number]:
                del queues[queue]

    # -- sending and telling ------------------------------------------------------------------

    def sent(self, envelope: Envelope) -> None:
        """Check that everything in sent envelopes is in a ledger."""
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None and envelope.ack_incarnation is not None:
            arrived = self.arrived_on(
                (link[1], link[0]), envelope.ack_incarnation, envelope.incarnation
            )
            if envelope.ack > arrived.received_up_to:
                raise Violation("ack before ledger", f"{link}: {envelope.ack} too early")
        if envelope.seq == 0:
            return
        sent = self.sent_on(link, envelope.incarnation)
        if envelope.seq > len(sent.messages):
            raise Violation("send before ledger", f"{link} number {envelope.seq}")
        if not 1 <= envelope.low_watermark <= sent.covered + 1:
            raise Violation(
                "low watermark", f"{link}: {envelope.low_watermark}, has {sent.covered}"
            )
        if envelope.tombstone:
            if not self.is_void(link, envelope.incarnation, envelope.seq):
                raise Violation("tombstone", f"{link} number {envelope.seq} was not given up")
            return
        content = (envelope.message_type, envelope.request_id, envelope.payload)
        if content != sent.messages[envelope.seq - 1]:
            raise Violation("gapless", f"{link} number {envelope.seq} is another message now")

    def answered(self, record: RequestRecord) -> None:
        """Check that the outcome of an answer was recorded, for the same payload."""
        request_id = record.request_id
        if record.state not in TERMINAL:
            raise Violation("told", f"{request_id} is {record.state}, and its caller is told")
        if request_id in self.reused:
            return
        if record.error is not None and _is_conflict(record):
            if request_id not in self.contested:
                raise Violation("identity", f"{request_id} is said to be another's, and is not")
            return
        if _outcome(record) not in self._outcomes.get(request_id, ()):
            raise Violation("told", f"{request_id}: no such outcome was recorded")
        if record.result is not None and record.payload != b"null":
            asked, answered = orjson.loads(record.payload), orjson.loads(record.result)
            if asked["n"] != answered["n"]:
                raise Violation("identity", f"{request_id} got the result of another request")

    # -- the end ------------------------------------------------------------------------------

    def everything(self, disks: list[Disk]) -> None:
        """Check all records at the end, when nothing is under way."""
        for disk in disks:
            for number, request_id in self._entered:
                if number == disk.number and request_id not in disk.requests:
                    raise Violation("durability", f"{request_id} is gone")
            for (number, request_id), account in self.requests.items():
                if number != disk.number:
                    continue
                self._check_rows(disk, request_id, account)
                if account.outcome is not None:
                    record = disk.requests.get(request_id)
                    if record is not None and _outcome(record) != account.outcome:
                        raise Violation("terminal", f"{request_id} has changed its outcome")
            for link, state in disk.links.items():
                self._check_link(disk, link, state)

    def each_executed_once(self, *, claimed_once: bool) -> None:
        """Check that nothing was executed twice: leases are renewed meanwhile (AACP-24).

        Args:
            claimed_once: nor claimed twice, as what was not yet known to be claimed may be.
        """
        for place, account in self.requests.items():
            is_again = (claimed_once and account.epoch > 1) or len(account.runs) > 1
            if is_again and place not in self._own_retries:
                raise Violation("renewal", f"{place[1]} was executed {len(account.runs)} times")

    def _check_link(self, disk: Disk, link: Link, state: LinkState) -> None:
        sent = self.sent_on(link, disk.incarnation)
        if state.last_seq != len(sent.messages):
            raise Violation("gapless", f"{link} gave out {state.last_seq}")
        if not state.acked <= sent.covered == state.last_seq:
            raise Violation("liveness", f"{link}: {state}, had {sent.covered}")
        arrived = self.arrived_on(link, state.incarnation, disk.incarnation)
        if state.received_up_to != arrived.received_up_to:
            raise Violation("acknowledgement", f"{link}: {state}, has {arrived.received_up_to}")


def _position(disk: Disk, request_id: str) -> float:
    """Return a request's place in its queue; one that is gone blocks no other."""
    record = disk.requests.get(request_id)
    return inf if record is None or record.position is None else record.position


def _is_before(disk: Disk, request_id: str, claim: Claim) -> bool:
    """Return whether a request that is executed keeps a claim from being made."""
    record = disk.requests.get(request_id)
    if record is not None and record.priority != claim.priority:
        return True
    return _position(disk, request_id) < _position(disk, claim.request_id)


def _may_be_claimed(record: RequestRecord, now_ms: int) -> bool:
    return record.expires_at_ms > now_ms and (record.not_before_ms or 0) <= now_ms


def _is_live(account: RequestAccount, now_ms: int) -> bool:
    return (
        account.outcome is None
        and account.expires_at_ms > now_ms
        and account.lease_until_ms is not None
        and account.lease_until_ms > now_ms
    )


def _run_of(result: bytes | None) -> int:
    """Return the number of the execution that made a result."""
    run: int = orjson.loads(result or b"{}")["run"]
    return run


def _outcome(record: RequestRecord) -> Outcome:
    return record.state, record.result, record.error and _canonical(record.error)


def _canonical(json: bytes) -> bytes:
    """Return it as it is after it was decoded from an envelope."""
    return orjson.dumps(orjson.loads(json), option=orjson.OPT_SORT_KEYS)


def _conflict(request_id: str) -> bytes:
    error = orjson.dumps(conflict_error(request_id).to_wire())
    return _canonical(response_payload(RequestState.FAILED, None, error))


def _is_conflict(record: RequestRecord) -> bool:
    error = orjson.dumps(conflict_error(record.request_id).to_wire())
    return record.error is not None and _canonical(record.error) == _canonical(error)


_CHECKS: dict[Operation, Callable[[Witness, Disk, tuple[Any, ...], Any], None]] = {
    Operation.APPEND: Witness.appended,
    Operation.RECEIVE: Witness.received,
    Operation.CLAIM: Witness.claimed,
    Operation.COMPLETE: Witness.completed,
    Operation.QUEUE_DELAYED: Witness.queued_delayed,
    Operation.ENTER_RUNS: Witness.entered_runs,
    Operation.RENEW: Witness.renewed,
    Operation.RELEASE: Witness.released,
    Operation.TAKE_DUE: Witness.taken,
    Operation.PURGE: Witness.purged,
}
