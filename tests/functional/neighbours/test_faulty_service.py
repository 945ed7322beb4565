"""What stands before a service answers again once it is healed, whatever faults began and ended beside one another."""

from __future__ import annotations

import asyncio
import random

import httpx

from skep.contracts.eventually import PATIENCE
from skep_lab.faulty_service import Mishap, faulty_service

ROUNDS = 60


async def test_it_answers_once_it_is_healed_whatever_stories_overlap() -> None:
    dice = random.Random(22)

    async def story() -> None:
        for _ in range(ROUNDS):
            await service.fail(dice.choice((Mishap.REFUSES, Mishap.REFUSES, Mishap.ERROR)))
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            await service.heal()

    async with faulty_service("http://127.0.0.1:1", lambda _path: {"there": True}) as service:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(story() for _ in range(3)))
            await service.heal()
            async with httpx.AsyncClient() as client:
                for _ in range(2):
                    assert (await client.get(service.url)).json() == {"there": True}
