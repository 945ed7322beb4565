"""Good clouds have no differences, whatever servers they have; mending them changes nothing."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.audit.look import look_once
from skep.audit.repair import repair
from skep.domain.groups import GroupRule
from skep.domain.ids import CELL0, GroupUuid
from skep.domain.instances import State
from tests.support.admin import CELL1, CELL2, admin_under_test, claim_of, host_state
from tests.support.samples import examples

TOGETHER, NEAR = (
    GroupRule(uuid=GroupUuid(f"group-{policy}"), policy=policy) for policy in ("affinity", "soft-affinity")
)
STATES = st.sampled_from([State.SCHEDULED, State.BUILDING, State.SPAWNING, State.ACTIVE, State.STOPPED, State.ERROR])

waiting = st.tuples(st.none(), st.just(State.SCHEDULED), st.just(0), st.none())
failed = st.tuples(st.just(CELL0), st.just(State.ERROR), st.integers(1, 3), st.none())
placed = st.tuples(st.sampled_from([CELL1, CELL2]), STATES, st.integers(1, 3), st.sampled_from([None, None, NEAR]))
# A cell has one host here, and a hard group has room on one host alone.
together = st.tuples(st.just(CELL1), STATES, st.integers(1, 3), st.just(TOGETHER))


async def build_and_look(directory: Path, servers: list[Any], claimed: set[int]) -> tuple[Any, Any]:
    async with admin_under_test(directory) as admin:
        claims = []
        for index, (cell, state, attempt, group) in enumerate(servers):
            server = await admin.server(cell, state=state, attempt=attempt, group=group)
            if index in claimed and cell in (None, CELL1):
                claims.append(claim_of(server, 0 if cell is None else None))
        admin.scheduler.states = [host_state("h1", CELL1, claims=tuple(claims)), host_state("h2", CELL2)]
        look = await look_once(admin.services.sources)
        return look, await repair(admin.services.sources, look.differences, dry_run=False)


@settings(max_examples=examples(25), deadline=None)
@given(servers=st.lists(st.one_of(waiting, failed, placed, together), max_size=8), claimed=st.sets(st.integers(0, 7)))
def test_nothing_differs(servers: list[Any], claimed: set[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        look, mended = asyncio.run(build_and_look(Path(directory), servers, claimed))
    assert (look.differences, look.unread, mended) == ((), (), [])
