"""What the operator wants, in the form in which schedulers are told: all of it, or what one change is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api import aggregates, cells, host_mappings
from skep.database.api.aggregates import Aggregate
from skep.domain.cells import Cell, HostIntent
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import (
    AggregatePage,
    OperatorStatePart,
    PublishOperatorState,
    aggregate_name,
)

PAGE_HOSTS = 500
"""Hosts of one message: at most 700 kB, were all their reasons as long as they may be."""
PAGE_MEMBERS = 2000
"""Hosts of one page of an aggregate: at most 520 kB, and so much smaller than a record may be."""
PAGE_AGGREGATES = 20
"""Aggregates of few hosts that go with one message."""


class Concerned(msgspec.Struct, frozen=True, kw_only=True):
    """What a change was about: these have to be told anew."""

    nodes: tuple[NodeUuid, ...] = ()
    aggregates: tuple[int, ...] = ()
    cells: bool = False


def read(connection: sa.Connection) -> PublishOperatorState:
    """Read the whole intent: hosts, aggregates and cells."""
    return PublishOperatorState(
        hosts=tuple(one.intent for one in host_mappings.every(connection) if one.deleting_at is None),
        aggregates=tuple(page for one in aggregates.every(connection) for page in _aggregate(one)),
        cells=_cells(connection),
    )


def parts(wanted: PublishOperatorState) -> list[PublishOperatorState]:
    """Cut the whole into messages that a transport can carry; cells come last, after all that they make valid."""
    return [*_host_pages(wanted.hosts), *_aggregate_pages(wanted.aggregates), _told("cells", cells=wanted.cells)]


def concerning(connection: sa.Connection, changed: Concerned) -> list[PublishOperatorState]:
    """Read what a change was about, as messages that say all that there is to say about it and nothing else."""
    messages = []
    for node in changed.nodes:
        mapping = host_mappings.get(connection, node)
        intents = (mapping.intent,) if mapping is not None and mapping.deleting_at is None else ()
        part = OperatorStatePart(kind="hosts", names=(node,))
        messages.append(_told("hosts", hosts=intents, part=part))
    for number in changed.aggregates:
        found = aggregates.get(connection, number)
        after, until = aggregate_name(number - 1, _LAST_PAGE), aggregate_name(number, _LAST_PAGE)
        messages += _aggregate_pages(_aggregate(found) if found is not None else (), after, until)
    if changed.cells:
        messages.append(_told("cells", cells=_cells(connection)))
    return messages


_LAST_PAGE = 999_999


def _aggregate(one: Aggregate) -> tuple[AggregatePage, ...]:
    hosts = sorted(one.hosts)
    starts = range(0, len(hosts) or 1, PAGE_MEMBERS)
    return tuple(
        AggregatePage(id=one.id, hosts=tuple(hosts[start : start + PAGE_MEMBERS]), metadata=one.metadata, page=page)
        for page, start in enumerate(starts)
    )


def _cells(connection: sa.Connection) -> tuple[Cell, ...]:
    return tuple(one for one in cells.every(connection) if not one.is_cell0)


def _host_pages(intents: Iterable[HostIntent]) -> list[PublishOperatorState]:
    ordered = sorted(intents, key=lambda one: one.node)
    pages = [ordered[start : start + PAGE_HOSTS] for start in range(0, len(ordered) or 1, PAGE_HOSTS)]
    after, messages = "", []
    for number, page in enumerate(pages, start=1):
        until = page[-1].node if number < len(pages) else None
        part = OperatorStatePart(kind="hosts", after=after, until=until)
        messages.append(_told("hosts", hosts=tuple(page), part=part))
        after = until or ""
    return messages


def _aggregate_pages(
    told: Sequence[AggregatePage], after: str = "", until: str | None = None
) -> list[PublishOperatorState]:
    """Cut aggregates into messages that together say everything of those between `after` and `until`."""
    pages: list[list[AggregatePage]] = [[]]
    for one in sorted(told, key=lambda page: (page.id, page.page)):
        members = sum(len(page.hosts) for page in pages[-1])
        if pages[-1] and (len(pages[-1]) == PAGE_AGGREGATES or members + len(one.hosts) > PAGE_MEMBERS):
            pages.append([])
        pages[-1].append(one)
    messages = []
    for number, page in enumerate(pages, start=1):
        last = aggregate_name(page[-1].id, page[-1].page) if number < len(pages) else until
        part = OperatorStatePart(kind="aggregates", after=after, until=last)
        messages.append(_told("aggregates", aggregates=tuple(page), part=part))
        after = last or ""
    return messages


def _told(
    kind: str,
    *,
    hosts: tuple[HostIntent, ...] = (),
    aggregates: tuple[AggregatePage, ...] = (),
    cells: tuple[Cell, ...] = (),
    part: OperatorStatePart | None = None,
) -> PublishOperatorState:
    told = part if part is not None else OperatorStatePart(kind="cells")
    assert told.kind == kind
    return PublishOperatorState(hosts=hosts, aggregates=aggregates, cells=cells, part=told)
