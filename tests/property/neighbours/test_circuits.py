"""Laws of the judgement whether a service is away, over any requests that overlap in any way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.neighbours.circuits import CircuitOutcome, CircuitRules, Permit, ServiceCircuit, admit, settle

STEPS = st.lists(
    st.one_of(
        st.just("ask"),
        st.tuples(st.sampled_from(list(CircuitOutcome)), st.integers(0, 5)),
        st.floats(0.0, 20.0),
    ),
    max_size=60,
)
"""A request is sent; one of those under way ends so; seconds pass."""


class Story:
    """What happens to one service, beside the judgement of it."""

    def __init__(self, rules: CircuitRules) -> None:
        self.rules = rules
        self.circuit = ServiceCircuit()
        self.now = 100.0
        self.under_way: list[Permit] = []
        self.failed_in_row = 0

    def ask(self) -> None:
        before = self.circuit
        self.circuit, permit = admit(before, self.rules, self.now)
        if before.probe_at is None:
            assert permit is not None, "who is not away is asked"
            assert permit.probe is None
        elif self.now < before.probe_at:
            assert permit is None, "who is away is not asked before its time"
            assert self.circuit == before
        else:
            assert permit is not None, "there is a probe once its time has come"
            assert admit(self.circuit, self.rules, self.now)[1] is None, "one at a time"
        if permit is not None:
            self.under_way.append(permit)

    def end(self, outcome: CircuitOutcome, which: int) -> None:
        if not self.under_way:
            return
        permit = self.under_way.pop(which % len(self.under_way))
        before = self.circuit
        self.circuit = after = settle(before, self.rules, permit, outcome, self.now)
        if outcome is CircuitOutcome.ANSWERED:
            self.failed_in_row = 0
            assert after.probe_at is None, "the first answer ends it"
            assert after.failures == 0
        elif outcome is CircuitOutcome.UNKNOWN:
            assert after.failures == before.failures, "who went away says nothing of a service"
            assert (after.probe_at is None) == (before.probe_at is None)
        else:
            self.failed_in_row += 1
            assert not (before.probe_at is not None and after.probe_at is None), "a failure brings no service back"
        if before.probe_at is None and after.probe_at is not None:
            assert outcome is CircuitOutcome.FAILED
            assert 0 < self.rules.failures <= self.failed_in_row, "only failures in a row say that it is away"
            assert after.probe_at == self.now + self.rules.pause


@given(STEPS, st.integers(0, 4), st.floats(0.1, 10.0), st.floats(0.0, 10.0))
def test_any_requests(steps: list[object], failures: int, pause: float, patience: float) -> None:
    story = Story(CircuitRules(failures=failures, pause=pause, patience=patience))
    for step in steps:
        if step == "ask":
            story.ask()
        elif isinstance(step, float):
            story.now += step
        elif isinstance(step, tuple):
            story.end(*step)
        assert failures or story.circuit.probe_at is None
        wait = (story.circuit.probe_at or story.now) - story.now
        assert wait <= pause + patience + 1e-6, "a service that came back is found out"


@given(st.integers(1, 6))
def test_so_many_failures_in_a_row_and_no_fewer(failures: int) -> None:
    rules, circuit = CircuitRules(failures=failures, pause=1.0), ServiceCircuit()
    for left in range(failures, 0, -1):
        assert circuit.probe_at is None, left
        circuit, permit = admit(circuit, rules, 0.0)
        assert permit is not None
        circuit = settle(circuit, rules, permit, CircuitOutcome.FAILED, 0.0)
    assert circuit.probe_at == 1.0
