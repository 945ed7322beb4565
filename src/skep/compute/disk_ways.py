"""Which way the disks of a cold move go: through the exchange if both hosts see it, else from agent to agent.

The target leaves a mark in its exchange when the move begins. The source looks for it before it touches its guest.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

from skep.compute.drivers.base import DriverError, MoveDriver
from skep.compute.host import Host
from skep.compute.move_orders import Result, built_of, exchange_of
from skep.domain.builds import BuildFailure, failure
from skep.domain.instances import PowerState
from skep.messages.to_compute import MoveStep

NO_EXCHANGE = "ExchangeNotShared"
"""The error of a move whose disks have no way."""


class Way(enum.Enum):
    """How disks leave their host."""

    EXCHANGE = "exchange"
    """They are put where the target sees them."""
    ASKED = "asked"
    """They stay until the target asks for them, if it does: it is this very host, or the agents have a wire."""


def refused(host: Host, order: MoveStep) -> BuildFailure | None:
    """Return why this host cannot be the target of a move; None: disks have a way to it, as far as it knows."""
    if host.exchange is not None:
        return None
    return _refused_without_exchange(host, order)


async def meet(host: Host, order: MoveStep, begun: Result) -> Result:
    """Show the source of a move that has begun which exchange this host has, if it looks."""
    looks = order.between_cells or order.by_wire
    if looks and host.exchange is not None and not isinstance(begun, BuildFailure):
        await host.exchange.meet(order.move, order.attempt)
    return begun


async def chosen(host: Host, order: MoveStep) -> Way | BuildFailure:
    """Return the way of the disks of a guest that is to be put aside, or why there is none."""
    if order.attempt == order.target:
        # It goes back to where its former disks are.
        return Way.ASKED
    why = None
    if order.between_cells:
        if host.exchange is not None and await host.exchange.meets(order.move, order.target):
            return Way.EXCHANGE
        why = _apart(host)
    elif host.exchange is None:
        why = _refused_without_exchange(host, order)
    elif not order.by_wire or await host.exchange.meets(order.move, order.target):
        # What is to be taken by an agent that knows no wire has this one way.
        return Way.EXCHANGE
    built = built_of(host, order)
    is_aside = built is not None and built.aside == order.move
    # A guest that is put aside already stays so.
    return Way.ASKED if why is None or is_aside else why


async def give(host: Host, order: MoveStep, way: Way) -> PowerState:
    """Give away the disks of a guest that is put aside. Raises DriverError."""
    if way is Way.EXCHANGE:
        assert isinstance(host.driver, MoveDriver)
        files = await host.driver.kept(order.instance.uuid, order.attempt)
        await exchange_of(host).offer(order.move, files)
    return PowerState.NOSTATE


async def take(host: Host, order: MoveStep) -> Mapping[str, Path] | None:
    """Return the files of a move that has put its guest aside; None when the server was stopped meanwhile.

    Raises DriverError when they are not to be had.
    """
    record = host.journal.attempts.get(order.instance.uuid)
    mine = [] if record is None else [number for number, one in record.open.items() if one.aside == order.move]
    if mine:
        assert isinstance(host.driver, MoveDriver)
        return await host.driver.kept(order.instance.uuid, mine[0])
    if host.exchange is not None and (host.fetching is None or await host.exchange.offers(order.move)):
        return await host.exchange.take(order.move)
    if host.fetching is None:
        raise DriverError(NO_EXCHANGE, f"host {host.name} has no way by which disks come")
    return await host.fetching.fetch(order)


async def leave(host: Host, order: MoveStep) -> None:
    """Remove what came for a target and is not needed any more."""
    if host.fetching is not None:
        await host.fetching.leave(order.move, order.attempt)


async def withdraw(host: Host, move: str) -> None:
    """Remove what was offered for a move."""
    if host.exchange is not None:
        await host.exchange.withdraw(move)


def _refused_without_exchange(host: Host, order: MoveStep) -> BuildFailure | None:
    if order.between_cells:
        return _apart(host)
    if order.by_wire:
        return None
    return failure(
        NO_EXCHANGE,
        f"host {host.name} sees no exchange (`[compute] exchange_directory`), and its agent, that of the other host or "
        "the conductor sends no disks without one (`[compute] move_address`)",
    )


def _apart(host: Host) -> BuildFailure:
    return failure(
        NO_EXCHANGE,
        f"host {host.name} does not see the exchange of the host that its server is to go to "
        "(`[compute] exchange_directory`)",
    )
