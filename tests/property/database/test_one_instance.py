"""One server of one cell under all writes in any order: by whoever is current, by those who were replaced, repeated.

What must hold whatever happens: the state moves only as it may, the attempt only grows, what is deleted stays deleted,
and a host that may have something of the server has an open attempt.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep.contracts.databases import new_in_memory
from skep.database.cell import attempts, builds, deletes, reschedules, tasks
from skep.database.cell.tables import instances
from skep.domain.instances import PowerState, State, Task
from skep.domain.states import TABLE
from tests.support.rows import CELL, FAULT, ME, ONE, any_open, asking, context, placed, staged
from tests.support.samples import examples

HOSTS = st.sampled_from(["host1", "host2"])
BACK = st.integers(0, 2)
"""How many attempts behind its row a writer is."""
GRANTED = frozenset({State.BUILDING, State.SPAWNING})


class OneInstance(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = new_in_memory("cell")
        self.connection = self.engine.connect()
        self.now = 100
        self.before: tuple[State, int] | None = None
        self.highest = 0
        self.holding: set[tuple[int, str]] = set()
        """(attempt, host) that were told to build and have not said that nothing is left."""

    def teardown(self) -> None:
        self.connection.close()
        self.engine.dispose()

    # --- what stands there ---

    @property
    def row(self) -> Any:
        return self.connection.execute(sa.select(instances).where(instances.c.uuid == ONE)).first()

    def attempt(self, back: int) -> int:
        return max(0, self.highest - back)

    def tick(self) -> int:
        self.now += 1
        return self.now

    # --- the level above ---

    @initialize(host=HOSTS)
    def staged_first(self, host: str) -> None:
        self.stage(host, 0)

    @rule(host=HOSTS, back=BACK)
    def stage(self, host: str, back: int) -> None:
        attempt = self.highest + 1 if self.row is None or back == 0 else self.attempt(back)
        if self.row is None:
            attempt = self.highest + 1
        builds.stage(self.connection, [staged(attempt=attempt, host=host)], self.tick())

    @rule(back=BACK)
    def settle(self, back: int) -> None:
        builds.settle(self.connection, [(ONE, self.attempt(back))], self.tick())

    @rule(back=BACK)
    def unstage(self, back: int) -> None:
        there = self.row
        removed = builds.unstage(self.connection, ONE, self.attempt(back))
        if self.row is None and there is not None:
            assert there.state == State.STAGED
            assert removed, "the claim of a staged row is given up with it"
            self.before = None

    @rule()
    def delete(self) -> None:
        deletes.begin(self.connection, ONE, context("req-delete"), self.tick())

    @rule()
    def purge_too_early(self) -> None:
        if not deletes.unforgotten(self.connection, 1):
            return
        assert deletes.purge(self.connection, self.now + 1000, 10) == 0, "the level above was not told"

    # --- the cell conductor ---

    @rule()
    def dispatch(self) -> None:
        for one in builds.dispatch_due(self.connection, CELL, self.tick(), self.now, 5):
            instance = one.work.instance
            assert (instance.state, instance.host) == (State.SCHEDULED, one.assignment.host)
            self.holding.add((instance.attempt, one.assignment.host))

    @rule()
    def take(self) -> None:
        reschedules.take(self.connection, ME, self.tick(), 5)

    @rule(host=HOSTS, back=BACK)
    def rescheduled(self, host: str, back: int) -> None:
        attempt = self.attempt(back)
        if any(one.attempt == attempt for one in attempts.history(self.connection, ONE)):
            return  # a host is chosen under an attempt that was just raised, never under one that had a host
        reschedules.rescheduled(self.connection, ONE, attempt, placed(host), self.tick())

    @rule(back=BACK)
    def exhausted(self, back: int) -> None:
        reschedules.exhausted(self.connection, ONE, self.attempt(back), FAULT, self.tick())

    @rule(back=BACK)
    def take_from_host(self, back: int) -> None:
        reschedules.take_from_host(self.connection, ONE, self.attempt(back), self.tick())

    @rule(back=BACK)
    def give_up_on_host(self, back: int) -> None:
        reschedules.give_up_on_host(self.connection, ONE, self.attempt(back), FAULT, self.tick())

    # --- hosts, which answer late and repeat themselves ---

    @rule(name=st.sampled_from(["may_build", "may_spawn"]), back=BACK, host=HOSTS)
    def asks(self, name: str, back: int, host: str) -> None:
        write = builds.may_build if name == "may_build" else builds.may_spawn
        granted = write(self.connection, ONE, self.attempt(back), host, self.tick())
        self._only_the_current(granted, back, host)

    def _only_the_current(self, granted: bool, back: int, host: str) -> None:
        if granted:
            there = self.row
            assert (there.attempt, there.host, there.task) == (self.attempt(back), host, None)
            assert there.state in GRANTED
            self.holding.add((there.attempt, host))

    @rule(back=BACK, host=HOSTS)
    def built(self, back: int, host: str) -> None:
        was = self.row
        current = builds.built(
            self.connection, ONE, self.attempt(back), host, self.tick(), PowerState.RUNNING, self.now
        )
        there = self.row
        if current:
            assert (there.attempt, there.host) == (self.attempt(back), host)
        if there is not None and there.state == State.ACTIVE and was.state != State.ACTIVE:
            assert was.state in (State.SCHEDULED, State.BUILDING, State.SPAWNING, State.ERROR)
            assert was.deleted_at is None

    @precondition(lambda self: bool(self.holding))
    @rule(data=st.data(), fault=st.sampled_from([None, FAULT]))
    def failed(self, data: st.DataObject, fault: Any) -> None:
        attempt, host = data.draw(st.sampled_from(sorted(self.holding)))
        there = self.row
        if there is not None and there.attempt == attempt and there.launched_at is not None:
            return  # a host says either that a guest runs or that its build failed
        builds.fail(self.connection, ONE, attempt, host, fault, self.tick())
        attempts.close(self.connection, ONE, host, attempt, self.now)
        self.holding -= {held for held in self.holding if held[1] == host and held[0] <= attempt}
        deletes.finish_if_closed(self.connection, ONE, self.now)

    @rule()
    def destroyed(self) -> None:
        """Every host that is told to undo something does so, and says up to which attempt."""
        for stale in attempts.stale_due(self.connection, self.tick(), self.now, 10):
            attempts.close(self.connection, ONE, stale.host, stale.attempt, self.now)
            self.holding -= {held for held in self.holding if held[1] == stale.host and held[0] <= stale.attempt}
        deletes.finish_if_closed(self.connection, ONE, self.now)

    @rule(late=st.booleans())
    def as_it_should_go(self, late: bool) -> None:
        """Do what comes next for the current attempt, so that builds get to their end among all the noise."""
        there = self.row
        if there is None or there.task is not None:
            return
        if late:
            self._every_late_host(there.host)
        if there.state == State.STAGED:
            self.settle(0)
        elif there.state == State.SCHEDULED:
            self.dispatch()
            self.asks("may_build", 0, there.host)
        elif there.state == State.BUILDING:
            self.asks("may_spawn", 0, there.host)
        elif there.state == State.SPAWNING:
            self.built(0, there.host)

    def _every_late_host(self, host: str | None) -> None:
        """Whoever was replaced asks and reports, just before the current attempt goes on."""
        for name in ("may_build", "may_spawn"):
            self.asks(name, 1, host or "host1")
        self.built(1, host or "host1")

    # --- users ---

    @rule(task=st.sampled_from([Task.POWERING_OFF, Task.POWERING_ON, Task.REBOOTING]))
    def task(self, task: Task) -> None:
        allowed = frozenset({State.ACTIVE, State.STOPPED, State.ERROR})
        tasks.begin(self.connection, ONE, asking(task, allowed), context(f"req-{self.tick()}"), self.now)

    @rule(back=BACK, power=st.sampled_from(PowerState))
    def task_done(self, back: int, power: PowerState) -> None:
        there = self.row
        if there is not None and there.task not in (None, Task.DELETING):
            tasks.done(self.connection, ONE, self.attempt(back), there.task_id, power, None, self.tick())

    # --- what must hold ---

    @invariant()
    def the_row_moves_as_it_may(self) -> None:
        there = self.row
        if there is None:
            return
        now = (State(there.state), there.attempt)
        if self.before is not None:
            state, attempt = self.before
            assert now[0] is state or now[0] in TABLE[state].followers, f"{state} -> {now[0]}"
            assert now[1] >= attempt
        self.before = now
        self.highest = max(self.highest, there.attempt)

    @invariant()
    def a_deleted_row_is_deleted_as_a_whole(self) -> None:
        there = self.row
        if there is not None:
            assert (there.state == State.DELETED) == (there.deleted_at is not None)
            if there.state == State.DELETED:
                assert there.task is None
                assert there.secrets is None
                assert not any_open(self.connection)
                assert not self.holding

    @invariant()
    def a_host_that_may_have_something_has_an_open_attempt(self) -> None:
        open_ones = {(one.attempt, one.host) for one in attempts.history(self.connection, ONE) if one.open}
        assert self.holding <= open_ones

    @invariant()
    def a_host_at_work_is_the_rows(self) -> None:
        there = self.row
        if there is not None and there.state in (State.SCHEDULED, *GRANTED, State.ACTIVE) and there.task is None:
            assert there.host is not None
            open_ones = {(one.attempt, one.host) for one in attempts.history(self.connection, ONE) if one.open}
            assert (there.attempt, there.host) in open_ones

    @invariant()
    def what_is_being_deleted_has_left_all_its_attempts_behind(self) -> None:
        there = self.row
        if there is not None and there.task == Task.DELETING:
            assert all(one.attempt < there.attempt for one in attempts.history(self.connection, ONE))

    @invariant()
    def an_end_keeps_no_secret(self) -> None:
        there = self.row
        if there is not None and there.state in (State.ACTIVE, State.STOPPED, State.ERROR, State.DELETED):
            assert there.secrets is None


OneInstance.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestOneInstance = OneInstance.TestCase
