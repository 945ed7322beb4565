"""One conductor is held in the midst of a move or a rebuild, another one finishes it, the first goes on: nothing twice.

The same server is resized, goes back, is migrated while it runs, stays where such a migration is aborted, and is
rebuilt; each time the first conductor stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from skep.compute.drivers.fake import FailureRule
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.instances import Instance, State
from skep.transport.host_states import host_states
from skep_lab.chaos.transport import ChaosTransport
from skep_lab.crash.takeover import Hold, SuspendedClock, second_process
from tests.functional.test_cold_moves import (
    BIG,
    CONTENT,
    becomes,
    disk_of,
    is_charged,
    move,
    move_of,
    only_attempt,
    revert,
    server_with_disk,
)
from tests.functional.test_live_migrations import behave, is_running, memory_of, migrate, never_two, wish
from tests.functional.test_rebuilds import rebuild

pytestmark = pytest.mark.crash

LEASE = ConductorSettings(lease_seconds=1.0, resend_seconds=0.2, move_deadline=30.0)
WITHOUT_END = FailureRule(operation="converge")
CHOOSING = "move_select"


class Takeover:
    """A cloud whose first conductor stands still at a point, again and again."""

    def __init__(self, cloud: Cloud, clock: SuspendedClock, step: str, when: str) -> None:
        self.cloud = cloud
        self._clock, self._step, self._when = clock, step, when

    async def through(self, ask: Callable[[], Awaitable[object]], uuid: Instance, state: State) -> Instance:
        """Have another conductor finish what is asked, and the first one come back; return the server."""
        with Hold(self._step, self._when, self._clock.stop) as hold:
            self.cloud.plane.steps.crash_hook = hold.at_step
            await ask()
            async with asyncio.timeout(PATIENCE):
                await hold.reached.wait()
            async with second_process(self.cloud):
                await self._ended(uuid, state)
                self._clock.go_on()
                await eventually(self._clocks_are_right, "the hosts have reported that their clocks are right")
                hold.release()
                async with asyncio.timeout(PATIENCE):
                    await hold.ended.wait()
                after = await self._ended(uuid, state)
        never_two(self.cloud)
        return after

    async def _clocks_are_right(self) -> bool:
        states = await host_states(self.cloud.plane.transport)
        return not any(state.usage.clock_ahead for state in states)

    async def _ended(self, server: Instance, state: State) -> Instance:
        """Wait until all hosts have said what came of it: nobody else's report settles what is claimed late."""
        after = await becomes(self.cloud, server.uuid, state)
        if state is not State.RESIZED:
            await only_attempt(self.cloud, after)
        return after


@pytest.mark.sampled(2)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [CHOOSING, "may_move", "moved"])
async def test_another_conductor_finishes_and_the_first_changes_nothing(tmp_path: Path, step: str, when: str) -> None:
    clock = SuspendedClock()
    transport = ChaosTransport(longest_call=0.5)
    quick = quick_config(copy_delay=0, conductor=LEASE)
    async with running_cloud(tmp_path, quick, cells=1, hosts=2, clock=clock, transport=transport) as cloud:
        takeover = Takeover(cloud, clock, step, when)
        server = await server_with_disk(cloud)
        resized = await takeover.through(lambda: move(cloud, server, "resize"), server, State.RESIZED)
        assert (resized.flavor, disk_of(cloud, resized)) == (BIG, CONTENT)
        assert resized.host != server.host
        cloud.plane.steps.crash_hook = None
        if step == CHOOSING:
            await revert(cloud, server.uuid)
            back = await becomes(cloud, server.uuid, State.ACTIVE)
        else:
            back = await takeover.through(lambda: revert(cloud, server.uuid), server, State.ACTIVE)
        await is_charged(cloud, back, server.flavor)
        assert (back.host, back.flavor, disk_of(cloud, back)) == (server.host, server.flavor, CONTENT)
        memory = memory_of(cloud, back)
        moved = await takeover.through(lambda: migrate(cloud, back), server, State.ACTIVE)
        assert moved.host != back.host
        assert (memory_of(cloud, moved), disk_of(cloud, moved)) == (memory, CONTENT)
        if step != CHOOSING:
            await aborted(takeover, moved)
            rebuilt = await takeover.through(lambda: rebuild(cloud, moved), server, State.ACTIVE)
            assert (rebuilt.name, rebuilt.host, disk_of(cloud, rebuilt)) == ("new", moved.host, b"")
        await cloud.delete(server.uuid)
        await cloud.gone([server.uuid])
        await cloud.nothing_left()


async def aborted(takeover: Takeover, server: Instance) -> None:
    """Abort a live migration that would never end: the guest goes on where it is."""
    cloud, memory = takeover.cloud, memory_of(takeover.cloud, server)
    cloud.plane.steps.crash_hook = None
    behave(cloud, WITHOUT_END)
    migration = await migrate(cloud, server)
    await is_running(cloud, server)
    stayed = await takeover.through(lambda: wish(cloud, server, "live_abort", migration), server, State.ACTIVE)
    assert (stayed.host, stayed.attempt, memory_of(cloud, stayed)) == (server.host, server.attempt, memory)
    assert (await move_of(cloud, server.uuid)).status == "cancelled"
    behave(cloud)
