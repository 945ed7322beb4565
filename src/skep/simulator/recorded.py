"""A decision log as a trace: who was asked for and when, on which hosts, and who went.

A log names who comes, not who goes: of a host it tells how much is used. When that becomes less, the oldest server
there of just that size has gone, or else those that were there longest and add up to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from skep.domain.cells import HostIntent
from skep.domain.clock import SECOND
from skep.domain.hosts import HostState
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Resources, add, subtract
from skep.messages.to_scheduler import AggregatePage
from skep.placement.hosts.published import DEFAULT_ZONE, ZONE_KEY, Aggregate
from skep.scheduler.decision_log.entries import (
    Applied,
    Decided,
    Entry,
    Header,
    Kept,
    LoggedRequest,
    Observed,
    UnreadableLine,
)
from skep.scheduler.decision_log.files import SUFFIX
from skep.scheduler.decision_log.reading import entries, segments
from skep.scheduler.records import AGGREGATES, COMPUTE, OPERATOR, ComputeValue
from skep.simulator.clouds import CloudPlan, of_states
from skep.simulator.events import Trace, TracedServer


def is_log(path: Path) -> bool:
    """Tell whether a file is one of a decision log, by its name."""
    return path.name.endswith(SUFFIX)


def read(path: Path, *, empty: bool = False) -> tuple[Trace, CloudPlan]:
    """Return the servers and hosts of a log; `empty`: hosts as if nobody were on them.

    Raises Unreadable, FileNotFoundError or OSError as reading does.
    """
    files = segments(path)
    spans = _spans(files)
    longest = max(spans, key=lambda run: spans[run])
    arrivals, hosts = _Arrivals(), _Hosts()
    for file in files:
        for at, run, entry in _timed(file):
            arrivals.take(at, entry)
            if run == longest:
                hosts.take(at, entry)
    begin = min(arrivals.at.values(), default=0)
    servers = tuple(
        TracedServer(
            name=name,
            at=at - begin,
            until=max(hosts.gone[name], at + 1) - begin if name in hosts.gone else None,
            spec=arrivals.specs[name],
        )
        for name, at in arrivals.at.items()
    )
    if not servers:
        raise UnreadableLine(f"{path}: the log has no request for a server")
    plan = of_states(hosts.states(), hosts.aggregates(), name=path.stem, empty=empty)
    return Trace(name=path.stem, servers=servers, begin=begin), plan


def _timed(file: Path) -> Iterator[tuple[int, str, Entry]]:
    """Yield entries with the moment in microseconds since the epoch, and whose they are."""
    lines = entries(file)
    header = next(lines)
    assert isinstance(header, Header)
    first: float | None = None
    at = header.at
    for entry in lines:
        now = entry.now if isinstance(entry, Observed | Applied) else None
        if now is not None:
            first = now if first is None else first
            at = header.at + round((now - first) * SECOND)
        yield at, header.run, entry


def _spans(files: Iterable[Path]) -> dict[str, int]:
    """Return how many bytes each scheduler wrote."""
    spans: dict[str, int] = {}
    for file in files:
        header = next(entries(file))
        assert isinstance(header, Header)
        spans[header.run] = spans.get(header.run, 0) + file.stat().st_size
    return spans


class _Arrivals:
    """Servers in the order in which any scheduler first decided about them."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.specs: dict[str, RequestSpec] = {}
        self._requests: dict[int, LoggedRequest] = {}

    def take(self, at: int, entry: Entry) -> None:
        if isinstance(entry, LoggedRequest):
            self._requests[entry.number] = entry
        elif isinstance(entry, Decided):
            message = self._requests[entry.number].message
            name = message.members[entry.member].instance
            if not message.dry_run and name not in self.at:
                self.at[name] = at
                self.specs[name] = message.spec


class _Hosts:
    """Hosts as they were when they were first heard of, and who has gone from them since."""

    def __init__(self) -> None:
        self.gone: dict[str, int] = {}
        self._intents: dict[NodeUuid, HostIntent] = {}
        self._first: dict[NodeUuid, ComputeValue] = {}
        self._now: dict[NodeUuid, ComputeValue] = {}
        self._there: dict[NodeUuid, dict[InstanceUuid, Resources]] = {}
        self._aggregates: dict[str, AggregatePage] = {}

    def take(self, at: int, entry: Entry) -> None:
        if not isinstance(entry, Kept | Applied):
            return
        node, value = NodeUuid(entry.name), entry.value
        if entry.namespace == OPERATOR and isinstance(value, HostIntent):
            self._intents.setdefault(node, value)
        elif entry.namespace == AGGREGATES and isinstance(value, AggregatePage):
            self._aggregates[entry.name] = value
        elif entry.namespace == COMPUTE and isinstance(value, ComputeValue) and value.report is not None:
            self._first.setdefault(node, value)
            self._compare(at, node, self._now.get(node), value)
            self._now[node] = value

    def states(self) -> list[HostState]:
        """Return every host that is mapped and has reported."""
        zones = {
            host: page.metadata[ZONE_KEY]
            for page in self._aggregates.values()
            if page.metadata.get(ZONE_KEY)
            for host in page.hosts
        }
        return [
            HostState(
                node=node,
                cell=intent.cell,
                usage=value.report.usage,
                incarnation=value.report.incarnation,
                seq=value.report.seq,
                claims=tuple(claim for claim in value.claims),
                disabled=intent.disabled,
                forced_down=intent.forced_down,
                up=not intent.forced_down,
                zone=zones.get(intent.host, DEFAULT_ZONE),
            )
            for node, value in self._first.items()
            if value.report is not None and (intent := self._intents.get(node)) is not None
        ]

    def aggregates(self) -> Mapping[int, Aggregate]:
        """Return aggregates as they were last."""
        found: dict[int, Aggregate] = {}
        for page in self._aggregates.values():
            before = found.get(page.id, Aggregate())
            found[page.id] = Aggregate(hosts=(*before.hosts, *page.hosts), metadata=page.metadata)
        return found

    def _compare(self, at: int, node: NodeUuid, before: ComputeValue | None, after: ComputeValue) -> None:
        """Find out who came to a host and who went."""
        there = self._there.setdefault(node, {})
        expected = _total(before)
        for claim in after.claims:
            if claim.instance not in there:
                there[claim.instance] = claim.resources
                self.gone.pop(claim.instance, None)
                expected = add(expected, claim.resources)
        if before is None:
            return
        missing = {name: amount for name, amount in subtract(expected, _total(after)).items() if amount > 0}
        held = {claim.instance for claim in after.claims}
        undone = [claim.instance for claim in before.claims if claim.instance in there and claim.instance not in held]
        oldest = [*undone, *(name for name in there if name not in held and name not in undone)]
        exact = [name for name in oldest if there[name] == missing]
        for name in exact[:1] or oldest:
            if missing and all(missing.get(kind, 0) >= amount for kind, amount in there[name].items()):
                missing = {kind: left for kind, left in subtract(missing, there[name]).items() if left > 0}
                del there[name]
                self.gone[name] = at


def _total(value: ComputeValue | None) -> Resources:
    """Return what is used and claimed on a host."""
    total: Resources = {}
    if value is None or value.report is None:
        return total
    for amounts in chain((value.report.usage.used,), (claim.resources for claim in value.claims)):
        total = add(total, amounts)
    return total
