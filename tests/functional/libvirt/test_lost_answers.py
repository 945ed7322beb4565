"""libvirt ends while a guest gets a device: what is said of it is true once libvirt answers again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError, PowerDriver
from skep.compute.drivers.interfaces import InterfaceDriver
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance, PowerState
from skep.domain.vifs import Vif
from tests.functional.libvirt.test_volumes_of_hosts import BrickHost, brick_host, server, volume
from tests.support.libvirt_hosts import PARTS, host_directory

pytestmark = [*PARTS, pytest.mark.timeout(600)]

AWAY = 5
"""How often libvirt does not answer once it has ended."""
VIF = Vif(id=new_uuid(), mac_address="fa:16:3e:00:00:07", network_id=new_uuid(), network_name="private", mtu=1450)


class NotedPorts:
    """Stands for what plugs ports of the host, and notes which are plugged."""

    def __init__(self) -> None:
        self.plugged: set[str] = set()

    def add(self, instance: Instance, attempt: int, queues: int) -> None:  # noqa: ARG002
        self.plugged |= {vif.id for vif in instance.vifs}

    def remove(self, instance: InstanceUuid, attempt: int, port: str) -> None:  # noqa: ARG002
        self.plugged.discard(port)


class LostAnswers:
    """Has libvirt end as it gives a device to a guest."""

    def __init__(self, host: BrickHost) -> None:
        self.host = host
        self.asked = 0
        self.left = 0
        """How often libvirt will not answer yet."""

    @contextmanager
    def at(self, part: int, *, done: bool) -> Iterator[pytest.MonkeyPatch]:
        """Have it end at the part of that number, which is `done` or not, and answer again a while later."""
        import libvirt

        attach, connection = libvirt.virDomain.attachDeviceFlags, self.host.driver._connection  # type: ignore[attr-defined]
        get, self.asked = connection.get, 0

        def cut(domain: Any, xml: str, flags: int) -> int:
            self.asked += 1
            if self.asked != part or done:
                attach(domain, xml, flags)
            if self.asked == part:
                self.left = AWAY
                raise libvirt.libvirtError("the connection was cut")
            return 0

        def answer() -> Any:
            if self.left:
                self.left -= 1
                raise DriverError("HypervisorUnavailable", "libvirt is away")
            return get()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(libvirt.virDomain, "attachDeviceFlags", cut)
            patch.setattr(connection, "get", answer)
            yield patch

    def devices(self, guest: InstanceUuid, path: str) -> list[int]:
        """Return how many such devices a guest has: now, and when it starts next."""
        import libvirt

        domain = self.host.driver._connection.get().lookupByUUIDString(guest)  # type: ignore[attr-defined]
        described = (domain.XMLDesc(flag) for flag in (0, libvirt.VIR_DOMAIN_XML_INACTIVE))
        return [len(ET.fromstring(one).findall(f"devices/{path}")) for one in described]


@pytest.fixture
async def lost() -> AsyncIterator[LostAnswers]:
    async with brick_host() as host:
        yield LostAnswers(host)


async def test_a_volume_is_the_guests_or_not_as_is_said(lost: LostAnswers) -> None:
    one, host = server(), lost.host
    await host.driver.spawn(one, 1, one.flavor.resources())
    with lost.at(2, done=False), pytest.raises(DriverError, match="was cut"):
        await host.of_volumes.attach_volume(one.uuid, 1, volume("lost"))
    assert lost.left == 0
    assert (host.connected(), lost.devices(one.uuid, "disk[serial]")) == ([], [0, 0])
    assert "lost" not in (host_directory() / "guests" / f"{one.uuid}_1" / "volumes").read_text()
    with lost.at(2, done=True):
        assert await host.of_volumes.attach_volume(one.uuid, 1, volume("kept")) is PowerState.RUNNING
        lost.left = AWAY
        assert await host.of_volumes.attach_volume(one.uuid, 1, volume("kept")) is PowerState.RUNNING
        lost.left = AWAY
        with pytest.raises(DriverError, match="libvirt is away"):
            await host.of_volumes.attach_volume(one.uuid, 1, volume("other"))
        assert lost.left == AWAY - 1, "nothing was begun of this one"
        lost.left = 0
    assert (host.connected(), lost.devices(one.uuid, "disk[serial]")) == (["kept"], [1, 1])


async def test_an_interface_is_the_guests_or_not_as_is_said(lost: LostAnswers) -> None:
    """Its end on the host is plugged as long as the guest has it. One that is off has it by its next start, or not."""
    from skep.compute.drivers.libvirt import interface_calls  # it imports what may not be installed
    from skep.compute.drivers.libvirt.guest_interfaces import LinkInterface

    one, driver, ports = server(), lost.host.driver, NotedPorts()
    await driver.spawn(one, 1, one.flavor.resources())
    assert isinstance(driver, InterfaceDriver)
    assert isinstance(driver, PowerDriver)
    element = f'<interface type="user"><mac address="{VIF.mac_address}"/><model type="virtio"/></interface>'
    given = msgspec.structs.replace(one, vifs=(VIF,))
    link = LinkInterface(link="eth0", mode="bridge", mac=VIF.mac_address, model="virtio")
    for part, done, said, has in ((2, False, False, [0, 0]), (2, True, True, [1, 1]), (1, True, False, [0, 0])):
        with lost.at(part, done=done) as patch:
            patch.setattr(interface_calls, "interface_element", lambda _: element)
            patch.setattr(driver._domains, "interfaces", lambda _: (link,))  # type: ignore[attr-defined]
            patch.setattr(driver, "_ports", ports)
            if said:
                assert await driver.attach_interface(given, 1, VIF) is PowerState.RUNNING
            else:
                with pytest.raises(DriverError, match="was cut"):
                    await driver.attach_interface(given, 1, VIF)
            assert lost.left == 0
            assert (lost.devices(one.uuid, "interface"), ports.plugged) == (has, {VIF.id} if said else set())
            if said:
                await driver.power_off(one.uuid)
                await driver.detach_interface(one.uuid, 1, VIF)
