"""The steps of a rebuild on its host, told late and twice."""

from __future__ import annotations

from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import INSIDES
from skep.compute.drivers.fake_inside import GuestInsides
from skep.messages.to_cell_conductor import Built, MayMove, MoveStepDone
from skep.messages.to_compute import MoveStep
from skep.transport.base import compute
from tests.support.agents import CELL, CONTEXT, HOST, MOVE, AgentStage, instance, uuid_of

PASSWORD = GuestContents(admin_password="sesame")


async def test_a_late_order_does_not_lose_the_password(stage: AgentStage) -> None:
    stage.open_contents = lambda _sealed: PASSWORD
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    assert (await stage.moved("rebuild_prepare", 2, kept=1)).failure is None
    assert (await stage.moved("rebuild_put_aside", 1)).failure is None
    stage.conductor.yes_seconds = 0.0
    made = instance(1)
    spawn = MoveStep(
        context=CONTEXT,
        move=MOVE,
        step="rebuild_spawn",
        instance=made,
        attempt=2,
        node=stage.agent.node,
        resources=made.flavor.resources(),
        start=True,
        kept=1,
        secrets=b"sealed by the API",
    )
    await stage.transport.cast(compute(CELL, HOST), spawn)
    await stage.conductor.hears(MayMove, lambda asked: asked.step == "rebuild_spawn")
    await stage.moved("rebuild_prepare", 2, kept=1)
    for _ in range(5):
        await stage.turn()
    stage.conductor.yes_seconds = 60.0
    told = await stage.conductor.hears(MoveStepDone, lambda one: one.step == "rebuild_spawn")
    assert told.failure is None
    assert GuestInsides(stage.directory / INSIDES).read(uuid_of(1)) == PASSWORD
