"""Every store beside a model in memory: whatever is asked of them, all answer alike.

The machine asks in any order what the task server asks, and what it never would: it completes jobs
that it has lost, changes tasks that are gone, continues lists behind any place. After every step
the jobs, the tasks and the summaries are compared, too.

Times differ between stores; an order by times is compared with the times of that store. Ids differ,
too: a store may leave some out, for a job that was undone. The model numbers tasks from 1, and each
store has ids of its own for these numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from attrs import asdict, astuple, define, evolve, field
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from foundation_rt.apps.task_server.jobs import Job, JobClaim
from foundation_rt.apps.task_server.queries import After, TaskFilter, TaskPage, TaskQuery
from foundation_rt.apps.task_server.store import (
    KeyConflictError,
    QueueFullError,
    TaskServerStore,
    TasksNotFoundError,
    TaskUpdate,
    VersionConflictError,
)
from foundation_rt.apps.task_server.tasks import STATUSES, NewTask, SortKey, Task
from tests.apps.task_server.stores.model import ModelClaim, ModelStore, ModelTask, figures
from tests.apps.task_server.stores.places import PLACES_OF_LISTS, Place
from tests.apps.task_server.stores.support import LEASE, new_job
from tests.lab.sizes import size

REFUSALS = (QueueFullError, KeyConflictError, TasksNotFoundError, VersionConflictError)
MAX_PENDING = 3

titles = st.sampled_from(("Straße", "100% sure", "a_b", "STRASSE 9", "Ünïcode \U0001f600", "x"))
descriptions = st.sampled_from((None, "", "text", "Größe\nzwei", "x" * 100))
dates = st.sampled_from((None, None, "1999-12-31", "2000-01-01", "2000-01-01", "2999-12-31"))
projects = st.sampled_from(("default", "default", "p", "P"))
priorities = st.integers(0, 3)
statuses = st.sampled_from(STATUSES)
words = st.sampled_from(("strasse", "%", "_", "X", "größe", "ü", "\U0001f600", "no such word"))
owners = st.sampled_from(("a", "b"))
ends = st.booleans()
new_tasks = st.builds(NewTask, titles, descriptions, statuses, dates, projects, priorities)
members = st.fixed_dictionaries(
    {},
    optional={
        "title": titles,
        "description": descriptions,
        "status": statuses,
        "due_date": dates,
        "project": projects,
        "priority": priorities,
    },
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@define
class Held:
    """A store under test, and what the machine has to know of it.

    Attributes:
        claims: of jobs, in the order in which they were made.
        times: when each task was changed last, by its number.
        ids: of all tasks, in the order in which they were stored.
    """

    make: Callable[[], TaskServerStore]
    store: TaskServerStore
    runner: asyncio.Runner
    claims: list[JobClaim] = field(factory=list)
    times: dict[int, str] = field(factory=dict)
    ids: list[int] = field(factory=list)

    def id_of(self, number: int) -> int:
        """Return the id of a task of the model, which may be one that is not stored yet."""
        if number <= len(self.ids):
            return self.ids[number - 1]
        return (self.ids[-1] if self.ids else 0) + number - len(self.ids)

    def number_of(self, task_id: int) -> int:
        """Return the number that the model has for a task."""
        if task_id in self.ids:
            return self.ids.index(task_id) + 1
        return len(self.ids) + task_id - (self.ids[-1] if self.ids else 0)

    def tasks(self, tasks: list[Task]) -> list[ModelTask]:
        """Return tasks as the model has them."""
        return [task_read(each._replace(id=self.number_of(each.id))) for each in tasks]

    def ask(self, operation: Coroutine[Any, Any, Any]) -> Any:
        """Return the answer, or what describes a refusal."""
        try:
            return self.runner.run(operation)
        except TasksNotFoundError as error:
            return described(TasksNotFoundError([self.number_of(each) for each in error.ids]))
        except VersionConflictError as error:
            versions = {self.number_of(each): error.versions[each] for each in error.versions}
            return described(VersionConflictError(versions))
        except REFUSALS as error:
            return described(error)


def described(error: BaseException) -> Any:
    return type(error), error.__dict__


def answered(held: Held, answer: Any) -> Any:
    """Return an answer as it is."""
    return answer


class StoreMachine(RuleBasedStateMachine):
    """Drives the model and every store of `places`."""

    places: Mapping[str, Place] = {}

    @initialize()
    def open_all(self) -> None:
        self.stack = ExitStack()
        self.model = ModelStore()
        self.claims: list[ModelClaim] = []
        self.held: dict[str, Held] = {}
        for name, place in self.places.items():
            make = self.stack.enter_context(place()).make
            runner = self.stack.enter_context(asyncio.Runner())
            self.held[name] = Held(make, make(), runner)
            runner.run(self.held[name].store.open())

    def teardown(self) -> None:
        for held in self.held.values():
            held.runner.run(held.store.close())
        self.stack.close()

    def compare(
        self,
        expect: Callable[[], Any],
        ask: Callable[[Held], Coroutine[Any, Any, Any]],
        read: Callable[[Held, Any], Any] = answered,
    ) -> None:
        """Ask the model once and every store; `read` makes an answer of a store comparable."""
        expected = self.expected(expect)
        for name, held in self.held.items():
            answer = held.ask(ask(held))
            is_refusal = isinstance(answer, tuple) and answer and answer[0] in REFUSALS
            assert (name, answer if is_refusal else read(held, answer)) == (name, expected)

    @staticmethod
    def expected(expect: Callable[[], Any]) -> Any:
        try:
            return expect()
        except REFUSALS as error:
            return described(error)

    # -- jobs ---------------------------------------------------------------------------------

    @rule(
        tasks=st.lists(new_tasks, min_size=1, max_size=5),
        key=maybe(st.sampled_from(("k", "l"))),
        principal=st.sampled_from(("ann", "bob")),
    )
    def submit(self, tasks: list[NewTask], key: str | None, principal: str) -> None:
        job = new_job(tasks, key=key, principal=principal)

        def expect() -> Any:
            found, duplicate = self.model.submit(job, MAX_PENDING)
            return figures(found), duplicate

        self.compare(
            expect,
            lambda held: held.store.submit_job(job, MAX_PENDING),
            lambda _, answer: (job_figures(answer.job), answer.duplicate),
        )

    @rule(owner=owners, ends=ends, attempts=st.integers(1, 3))
    def claim(self, owner: str, ends: bool, attempts: int) -> None:
        claim = self.model.claim(owner, ends, attempts)
        if claim is not None:
            self.claims.append(claim)

        def read(answer: JobClaim | None) -> Any:
            if answer is None:
                return None
            return answer.job.job_id, answer.job.attempts, answer.owner, answer.payload

        expected = None
        if claim is not None:
            payload = self.model.jobs[claim.job_id].new.payload
            expected = claim.job_id, claim.attempt, claim.owner, payload
        for held in self.held.values():
            answer = held.ask(held.store.claim_job(owner, 0 if ends else LEASE, attempts))
            assert read(answer) == expected
            if answer is not None:
                held.claims.append(answer)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), ends=ends)
    def renew(self, data: st.DataObject, ends: bool) -> None:
        n = self.choose_claim(data)
        self.compare(
            lambda: self.model.renew(self.claims[n], ends),
            lambda held: held.store.renew_job(held.claims[n], 0 if ends else LEASE),
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        n = self.choose_claim(data)
        self.compare(
            lambda: self.model.release(self.claims[n]),
            lambda held: held.store.release_job(held.claims[n]),
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), tasks=st.lists(new_tasks, min_size=1, max_size=5))
    def complete(self, data: st.DataObject, tasks: list[NewTask]) -> None:
        n = self.choose_claim(data)
        job = self.model.jobs.get(self.claims[n].job_id)
        tasks = tasks[: job.new.total_tasks] if job is not None else tasks
        self.compare(
            lambda: figures(self.model.complete(self.claims[n], tasks)),
            lambda held: held.store.complete_job(held.claims[n], tasks),
            lambda _, answer: job_figures(answer),
        )
        self.learn_ids()

    def learn_ids(self) -> None:
        """Learn the ids of new tasks, which are greater than all before."""
        for held in self.held.values():
            new = self.model.last_id - len(held.ids)
            if new:
                query = TaskQuery(TaskFilter(), descending=True, limit=new)
                ids = [task.id for task in held.ask(held.store.list_tasks(query)).tasks][::-1]
                assert [*held.ids[-1:], *ids] == sorted({*held.ids[-1:], *ids})
                held.ids += ids

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        n = self.choose_claim(data)
        self.compare(
            lambda: figures(self.model.fail(self.claims[n], "It failed.")),
            lambda held: held.store.fail_job(held.claims[n], "It failed."),
            lambda _, answer: job_figures(answer),
        )

    def choose_claim(self, data: st.DataObject) -> int:
        # Mostly one of the last: those before are lost.
        return max(0, len(self.claims) - 1 - data.draw(st.integers(0, 3)))

    @rule(attempts=st.integers(1, 3), removes=ends)
    def maintain(self, attempts: int, removes: bool) -> None:
        def expect() -> Any:
            failed, removed = self.model.maintain(attempts, removes)
            return by_id(map(figures, failed)), removed

        self.compare(
            expect,
            lambda held: held.store.maintain_jobs(attempts, 0 if removes else 720),
            lambda _, answer: (by_id(map(job_figures, answer.failed)), answer.removed),
        )

    # -- tasks --------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), project=maybe(projects), worker=owners, ends=ends)
    def claim_tasks(self, count: int, project: str | None, worker: str, ends: bool) -> None:
        self.compare(
            lambda: self.model.claim_tasks(count, project, worker, ends),
            lambda held: held.store.claim_tasks(count, project, worker, 0 if ends else 900),
            Held.tasks,
        )

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(self.task_ids(), min_size=1, max_size=3, unique=True))
        updates = [
            TaskUpdate(
                task_id,
                data.draw(maybe(st.integers(1, 3))),
                data.draw(members),
                data.draw(maybe(st.sampled_from((0, 900)))),
            )
            for task_id in ids
        ]
        self.compare(
            lambda: self.model.update(updates),
            lambda held: held.store.update_tasks(
                [TaskUpdate(held.id_of(each.id), *astuple(each)[1:]) for each in updates]
            ),
            lambda held, answer: [(held.number_of(each), version) for each, version in answer],
        )

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(self.task_ids(), min_size=1, max_size=2, unique=True))
        job_id = data.draw(st.sampled_from((None, None, *self.job_ids())))
        self.compare(
            lambda: self.model.delete(None if job_id else ids, job_id),
            lambda held: held.store.delete_tasks(
                None if job_id else [held.id_of(each) for each in ids], job_id
            ),
            lambda held, answer: (answer.deleted, [held.number_of(n) for n in answer.missing]),
        )

    def task_ids(self) -> st.SearchStrategy[int]:
        """Of a task that is there, was there, or will be."""
        return st.integers(1, self.model.last_id + 1)

    def job_ids(self) -> list[str]:
        return sorted({*self.model.jobs, *(task.job_id for task in self.model.tasks.values())})[:4]

    # -- lists --------------------------------------------------------------------------------

    @precondition(lambda self: self.model.tasks)
    @rule(data=st.data(), sort=st.sampled_from(("id", "dueDate", "priority", "updatedAt")))
    def list_tasks(self, data: st.DataObject, sort: SortKey) -> None:
        draw = data.draw
        place = draw(maybe(self.task_ids()))
        recent = draw(st.sampled_from((None, None, place)))
        where: dict[str, Any] = {
            "status": draw(maybe(statuses)),
            "project": draw(maybe(projects)),
            "job_id": draw(st.sampled_from((None, None, *self.job_ids()))),
            "ids": draw(maybe(st.lists(self.task_ids(), max_size=6).map(tuple))),
            "claimed_by": draw(st.sampled_from((None, None, None, "a", "b"))),
            "words": draw(st.lists(words, max_size=2).map(tuple)),
            "due_before": draw(dates),
            "due_after": draw(dates),
        }
        # Mostly few conditions: many leave nothing.
        kept = draw(st.lists(st.sampled_from(sorted(where)), max_size=2))
        where = {name: value for name, value in where.items() if name in kept}
        paging = {
            "sort": sort,
            "descending": draw(st.booleans()),
            "limit": draw(st.integers(1, 6)),
            "offset": 0 if place else draw(st.integers(0, 4)),
        }
        for name, held in self.held.items():
            self.look_at_times(held)
            since = None if recent is None else held.times.get(recent)
            query = TaskQuery(
                TaskFilter(**where, updated_after=since),
                **paging,
                after=None if place is None else self.behind(held, sort, place),
            )
            page: TaskPage = held.ask(held.store.list_tasks(with_ids(query, held)))
            tasks, has_more, total = self.model.page(query, held.times.__getitem__)
            assert (name, held.tasks(page.tasks)) == (name, tasks)
            assert (page.has_more, page.total) == (has_more, total)
            assert not page.total_is_lower_bound

    def behind(self, held: Held, sort: SortKey, task_id: int) -> After:
        """Return the place behind a task, or behind one that is not there."""
        task = self.model.tasks.get(task_id)
        keys: dict[str, Any] = {
            "id": None,
            "dueDate": task.due_date if task else "2000-01-01",
            "priority": task.priority if task else 2,
            "updatedAt": held.times.get(task_id, "2026-01-01T00:00:00.000Z"),
        }
        return After(keys[sort], task_id)

    def look_at_times(self, held: Held) -> None:
        page = held.ask(held.store.list_tasks(TaskQuery(TaskFilter(), limit=1000)))
        held.times = {held.number_of(task.id): task.updated_at for task in page.tasks}

    # -- the whole ----------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        for held in self.held.values():
            held.runner.run(held.store.close())
            held.store = held.make()
            held.runner.run(held.store.open())

    @invariant()
    def everything_is_equal(self) -> None:
        if not hasattr(self, "model"):
            return
        everything = TaskQuery(TaskFilter(), limit=1000, count=False)
        self.compare(
            lambda: sorted(self.model.tasks.values(), key=lambda each: each.id),
            lambda held: held.store.list_tasks(everything),
            lambda held, page: held.tasks(page.tasks),
        )
        for project in (None, "default", "p"):
            self.compare(
                lambda project=project: self.model.summarize(project),
                lambda held, project=project: held.store.summarize(project),
                lambda _, answer: summary_read(answer),
            )
        self.compare(
            self.model.count_jobs, lambda held: held.store.count_jobs(), lambda _, n: dict(n)
        )
        for job_id, job in self.model.jobs.items():
            self.compare(
                lambda job=job: figures(job),
                lambda held, job_id=job_id: held.store.get_job(job_id),
                lambda _, answer: job_figures(answer),
            )


# -- answers of stores, as those of the model -----------------------------------------------------


def job_figures(job: Job | None) -> Mapping[str, Any] | None:
    if job is None:
        return None
    answer = asdict(job)
    started, completed, duration = (
        answer.pop(name) is not None for name in ("started_at", "completed_at", "duration_ms")
    )
    assert duration == (started and completed)
    assert answer.pop("created_at") <= answer.pop("updated_at")
    return {**answer, "started": started, "ended": completed}


def with_ids(query: TaskQuery, held: Held) -> TaskQuery:
    """Return a query of the model with the ids of a store."""
    where, after = query.where, query.after
    if where.ids is not None:
        where = evolve(where, ids=tuple(held.id_of(each) for each in where.ids))
    if after is not None:
        after = After(after.key, held.id_of(after.id))
    return evolve(query, where=where, after=after)


def task_read(task: Task) -> ModelTask:
    assert task.created_at <= task.updated_at
    # A claim is given for 0 s or for 900 s, by the same clock as the change.
    ended = None if task.claim_expires_at is None else _had_ended(task)
    return ModelTask(*task[:7], task.job_id, task.created_by, task.version, task.claimed_by, ended)


def _had_ended(task: Task) -> bool:
    assert task.claim_expires_at is not None
    return task.claim_expires_at <= task.updated_at


def summary_read(summary: Any) -> dict[str, Any]:
    answer = asdict(summary)
    del answer["generated_at"]
    return {**answer, "count_by_status": dict(answer["count_by_status"])}


def by_id(jobs: Any) -> list[Any]:
    return sorted(jobs, key=lambda job: job["job_id"])


@pytest.mark.rule(
    "TASKS-71",
    "TASKS-73",
    "TASKS-74",
    "TASKS-75",
    "TASKS-77",
    "TASKS-78",
    "TASKS-80",
    "TASKS-81",
    "TASKS-82",
    "TASKS-83",
)
def test_stores_answer_as_the_model_does() -> None:
    machine = type("Machine", (StoreMachine,), {"places": PLACES_OF_LISTS})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=size(6, 40),
            stateful_step_count=size(25, 40),
            # Shrinking takes minutes, as every history has databases of its own.
            phases=[phase for phase in Phase if phase is not Phase.shrink],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
