"""A conductor whose beats do not reach a scheduler says so."""

from __future__ import annotations

from skep.cell_conductor.beats import FAILED_BEATS
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.service import CellConductor
from skep.domain.context import RequestContext
from skep.messages.to_scheduler_liveness import Beat, BeatReply
from skep.transport.base import scheduler_for


async def test_beats_that_fail_again_and_again_are_said_until_one_arrives(parts: Parts) -> None:
    async def hear(_beat: Beat, _context: RequestContext | None) -> BeatReply:
        return BeatReply(asserted=True, epoch="e")

    conductor = CellConductor(parts)
    for _ in range(FAILED_BEATS):
        assert conductor.troubles() == [], "a scheduler that is started anew is no trouble"
        await conductor._beats._beat()
    [trouble] = conductor.troubles()
    assert trouble.startswith(f"beat: schedulers were not reached {FAILED_BEATS} times in a row: ")
    subscription = await parts.above.serve(scheduler_for(parts.cell.uuid), {Beat: hear})
    await conductor._beats._beat()
    assert conductor.troubles() == []
    await subscription.close()


async def test_a_conductor_watches_whether_it_can_hear_hosts(parts: Parts) -> None:
    """From its start on, whatever becomes of its beats."""
    conductor = CellConductor(parts)
    assert conductor._hosts.watching in conductor._loops
