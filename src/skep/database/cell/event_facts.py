"""Facts of a cell that wait to be copied into the event log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import attempts, event_facts
from skep.database.stored import load
from skep.domain.builds import Explanation
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Fault
from skep.domain.server_events import Fact
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

_row = event_facts.c
_WHY = sa.case((_row.kind == "chosen", attempts.c.explanation)).label("explanation")
_FACTS = (
    sa.select(event_facts, _WHY, attempts.c.built_at)
    .join_from(
        event_facts,
        attempts,
        sa.and_(
            _row.kind.in_(("chosen", "attempt")),
            attempts.c.instance == _row.instance,
            attempts.c.attempt == _row.attempt,
        ),
        isouter=True,
    )
    .order_by(_row.id)
    .limit(sa.bindparam("most"))
)
_OF_SERVER = _FACTS.where(_row.instance == sa.bindparam("of"))
_FORGET = sa.delete(event_facts).where(_row.id == sa.bindparam("number"), _row.fact_key == sa.bindparam("noted"))
_LAST = sa.select(sa.func.coalesce(sa.func.max(_row.id), 0))
_UNTELL = sa.delete(event_facts).where(_row.id > sa.bindparam("last"), _row.kind.in_(("begun", "ended")))


def oldest(connection: sa.Connection, limit: int) -> list[Fact]:
    """Return the facts that have waited longest, in their order."""
    return [_fact(one) for one in connection.execute(_FACTS, {"most": limit}).mappings()]


def of_server(connection: sa.Connection, instance: InstanceUuid, limit: int) -> list[Fact]:
    """Return the facts of a server, as `oldest` does."""
    return [_fact(one) for one in connection.execute(_OF_SERVER, {"most": limit, "of": instance}).mappings()]


def forget(connection: sa.Connection, facts: list[Fact]) -> None:
    """Remove facts that are copied. What a restored cell noted under the same numbers stays."""
    if facts:
        connection.execute(_FORGET, [{"number": one.id, "noted": one.fact_key} for one in facts])


@contextmanager
def no_news(connection: sa.Connection) -> Iterator[None]:
    """Have no fact of actions that are written meanwhile: they are copies of those that another cell tells."""
    last = connection.execute(_LAST).scalar_one()
    yield
    connection.execute(_UNTELL, {"last": last})


def _fact(found: sa.RowMapping) -> Fact:
    values = {name: found[name] for name in _PLAIN}
    try:
        for name, kind in _ENCODED:
            if found[name] is not None:
                values[name] = load(found[name], kind)
    except (msgspec.MsgspecError, ValueError) as error:
        log.error("fact cannot be read", instance=found["instance"], kind=found["kind"], error=str(error))
        values["damaged"] = True
    return Fact(**values)


_ENCODED = (("fault", Fault), ("explanation", Explanation))
_PLAIN = (*(column.name for column in event_facts.c if column.name != "fault"), "built_at")
