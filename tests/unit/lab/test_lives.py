"""What users do in chaos: everything that can be done to a server."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx

from skep.api.actions import ACTION_ROWS
from skep_lab.chaos.contents import WrittenDisks
from skep_lab.chaos.lives import DELETE, FORCE_DELETE, LIVES
from skep_lab.chaos.living import LivingServers
from skep_lab.chaos.overlap import Overlap

BY_OTHERS = {FORCE_DELETE, "evacuate"}
"""What ends servers for good, and what operators do about hosts that are down."""
OF_MIGRATION = {"abort", "force_complete"}


def test_lives_have_every_action_of_the_table() -> None:
    done = {key for life in LIVES for action in life for key in action}
    rows = {row.key for row in ACTION_ROWS if row.actions}
    assert done == (rows - BY_OTHERS) | OF_MIGRATION | {DELETE}


def test_each_kind_of_reboot_is_done() -> None:
    kinds = {str(action["reboot"]) for life in LIVES for action in life if "reboot" in action}
    assert len(kinds) == 2


def test_each_life_comes_once_before_any_comes_again() -> None:
    async def ask(_method: str, _path: str, _body: object) -> httpx.Response | None:
        return None

    living = LivingServers(ask, WrittenDisks(Path("unused")), str, lambda _server: None)
    dice = random.Random(3)
    first, second = ([living.next_life(LIVES, dice) for _ in LIVES] for _ in range(2))
    assert sorted(map(str, first)) == sorted(map(str, second)) == sorted(map(str, LIVES))


def test_overlaps_are_counted() -> None:
    overlap = Overlap()

    async def one(until: asyncio.Event) -> None:
        with overlap:
            await until.wait()

    async def several() -> None:
        until = asyncio.Event()
        hands = [asyncio.create_task(one(until)) for _ in range(3)]
        await asyncio.sleep(0)
        until.set()
        await asyncio.gather(*hands)
        await one(until)

    asyncio.run(several())
    assert (overlap.most, overlap.beside, overlap.now) == (3, 2, 0)
