"""Stories of an operator who evacuates a host: one that lives on, or one that lost its power and comes back later."""

from __future__ import annotations

import asyncio
from functools import partial

from skep_lab.crash.evacuating import HearsOfEvacuations, Operator
from skep_lab.crash.power import cut_power
from skep_lab.processes.faults import DOWN_SECONDS, Fault, ProcessFaults
from skep_lab.processes.operator import OPERATOR, asked, asked_until_done


def evacuations(faults: ProcessFaults, told: HearsOfEvacuations) -> dict[str, Fault]:
    """Return the stories by name; `told` hears of each server that is evacuated."""
    return {
        "living host evacuated": partial(evacuate, faults, told, lost=False),
        "lost host evacuated": partial(evacuate, faults, told, lost=True),
    }


async def evacuate(faults: ProcessFaults, told: HearsOfEvacuations, *, lost: bool) -> bool:
    """Say that a host is down, and fence it if it lost its power; evacuate its servers, and take it back."""
    cloud = faults.cloud
    with faults.taking([OPERATOR]) as free, faults.taking_process("compute") as child:
        if free is None or child is None:
            return False
        host = child.order.name.removeprefix("compute-")
        operator = Operator(partial(asked, cloud), faults.dice, cloud.hosts, told)
        if lost:
            await asyncio.to_thread(child.kill)
            cut_power(cloud.host_directory(child), child.clock_offset)
        said = await operator.say(host, down=True)
        if said and lost:
            await asked_until_done(cloud, "POST", f"/admin/v1/hosts/{host}/fence")
        if said:
            await operator.evacuate(host, faults.dice.choice((1.0, 0.5)))
            await faults.wait(faults.dice.uniform(*DOWN_SECONDS))
        if lost:
            await asked_until_done(cloud, "DELETE", f"/admin/v1/hosts/{host}/fence")
            child.start()
        await operator.say_up(host)
        await operator.start_again()
        faults.evacuated += operator.evacuated
    return said
