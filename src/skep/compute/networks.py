"""Has the driver bring what the network service says of the host: periodically, and before a guest that needs it.

What is there stays as it is while nothing can be asked: networks outlive conductors, agents and network services.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Collection

import msgspec
import structlog

from skep.compute.drivers.base import Driver, DriverError, NetworksDriver
from skep.compute.host import Host
from skep.domain.builds import BuildFailure
from skep.domain.errors import SkepError, StaleAgent
from skep.domain.host_networks import HostNetworks, unpacked, versioned
from skep.domain.instances import Instance
from skep.messages.to_cell_conductor import ReadNetworks

log = structlog.get_logger("skep.compute")

BRING_SECONDS = 5.0
"""For so long a guest waits for its ports to be brought. They are bound to the host before, or a moment after. It is
made all the same when nobody can say so, and its network follows."""
LOOK_SECONDS = 10.0
"""At least so long after it was told, a driver is told the same again: what has died on the host comes back."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two questions of one that waits."""


@dataclasses.dataclass
class BroughtNetworks:
    """What the driver was told last."""

    said: str = ""
    """The version that the network service gave it; empty: nothing, or the driver did not bring it."""
    networks: HostNetworks = dataclasses.field(default_factory=HostNetworks)


class HostNetworking:
    """The networks of one host. One task asks and tells, so that a driver that hangs holds up no build."""

    def __init__(self, host: Host, driver: NetworksDriver) -> None:
        self._host = host
        self._driver = driver
        self._told = BroughtNetworks()
        self._waiting: list[asyncio.Future[None]] = []
        """Builds that wait for the end of a round which has not begun."""
        self._nudge = asyncio.Event()
        self._brought = True
        """Whether hosts bring the networks of this cloud, as was heard last."""
        self._trouble = ""
        self._told_at = time.monotonic()

    async def run(self) -> None:
        """Ask and tell until cancelled."""
        while True:
            self._host.work.check()
            self._nudge.clear()
            waiting, self._waiting = self._waiting, []
            await self._once(anew=bool(waiting))
            if self._told.said and time.monotonic() - self._told_at >= LOOK_SECONDS:
                await self._have_brought(self._told.said, self._told.networks)
            for one in waiting:
                if not one.done():
                    one.set_result(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._host.settings.networks_seconds):
                    await self._nudge.wait()

    async def bring(self, instance: Instance) -> None:
        """Have the ports of a server brought before its guest is made; that others bring them is known at once."""
        wanted = {vif.id for vif in instance.vifs}
        try:
            async with asyncio.timeout(BRING_SECONDS):
                await self._until_there(wanted)
        except TimeoutError:
            log.warning("a guest is made before its networks", host=self._host.name, instance=instance.uuid)

    async def _until_there(self, wanted: Collection[str]) -> None:
        pause = FIRST_PAUSE
        while not self._has(wanted):
            await self._round()
            if self._has(wanted) or not self._brought:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _round(self) -> None:
        """Wait until it was asked and told once more, from now on."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(over)
        self._nudge.set()
        await over

    def _has(self, ports: Collection[str]) -> bool:
        there = {port.id for segment in self._told.networks.segments for port in segment.ports}
        return there.issuperset(ports)

    async def _once(self, *, anew: bool) -> None:
        """Ask what is to be brought, and tell the driver if that is something else than before."""
        upcalls = self._host.upcalls
        if not upcalls.takes_networks:
            # Conductors of before 0.11.0 never will; what a new one takes is not known before its first answer.
            self._brought = upcalls.takes_networks is None
            return
        try:
            tunnel = self._driver.tunnel_address()
            said = self._told.said
            asked = ReadNetworks(host=self._host.name, tunnel_address=tunnel, version=said, anew=anew, unpacks=True)
            answer = await upcalls.once(asked)
            networks = answer.networks if answer.packed is None else unpacked(answer.packed)
        except StaleAgent:
            upcalls.on_stale()
        except (SkepError, DriverError, ValueError) as error:
            self._note(str(error))
        else:
            self._brought = answer.brought
            if answer.brought:
                await self._tell(networks)

    async def _tell(self, said: HostNetworks | None) -> None:
        """Have the driver bring what was said; None: the same as before."""
        before = self._told
        wanted = self._named(before.networks if said is None else said)
        version = before.said if said is None else said.version
        if before.said == version and before.networks.version == wanted.version:
            self._note("")
            return
        if await self._have_brought(version, wanted):
            self._note("")

    async def _have_brought(self, version: str, wanted: HostNetworks) -> bool:
        """Tell the driver; return whether it says that all is there."""
        # Whatever becomes of it is told again, unless the driver says that it is there.
        self._told = BroughtNetworks(networks=self._told.networks)
        done = await self._host.calls.change("action", self._driver.networks(wanted))
        self._told_at = time.monotonic()
        if isinstance(done, BuildFailure):
            self._note(f"{done.error}: {done.message}")
            return False
        self._told = BroughtNetworks(version, wanted)
        return True

    def _named(self, networks: HostNetworks) -> HostNetworks:
        """Return the networks with the host names of guests, which this host knows and the network service does not."""
        names = dict(self._host_names())
        segments = tuple(
            msgspec.structs.replace(
                segment,
                ports=tuple(
                    msgspec.structs.replace(port, host_name=names.get(port.server, port.host_name))
                    for port in segment.ports
                ),
            )
            for segment in networks.segments
        )
        return versioned(msgspec.structs.replace(networks, segments=segments))

    def _host_names(self) -> list[tuple[str, str]]:
        records = self._host.journal.attempts.records.values()
        described = (opened.described for record in records for opened in record.open.values())
        return [(one.uuid, one.hostname) for one in described if one is not None and one.hostname]

    def _note(self, trouble: str) -> None:
        """Say each trouble once, and when it is over."""
        if trouble and trouble != self._trouble:
            log.warning("networks not brought, what is there stays", host=self._host.name, error=trouble)
        elif self._trouble and not trouble:
            log.info("networks brought again", host=self._host.name)
        self._trouble = trouble


def networks_of(host: Host, driver: Driver) -> HostNetworking | None:
    """Return what brings the networks of a host; None: its driver brings none."""
    return HostNetworking(host, driver) if isinstance(driver, NetworksDriver) and driver.wants_networks else None
