"""Servers that get CPUs, pages and devices of their own, through a whole cloud in one loop."""

from __future__ import annotations

from pathlib import Path

from skep.config.compute import FakeDevicesSettings
from skep.config.sections import Config
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.domain.flavors import Flavor
from skep.domain.instances import State
from skep.domain.nested.room import room_of
from skep.simulator.inside import GPU, devices
from skep.transport.host_states import host_states

PINNED = Flavor(
    flavorid="7",
    name="pinned",
    vcpus=2,
    memory_mb=512,
    root_gb=1,
    extra_specs={"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large"},
)


def config() -> Config:
    gpus = FakeDevicesSettings(count=4, vendor_id="10de", product_id="1eb8")
    return quick_config(numa_cells=2, dedicated_cpus=8, threads_per_core=2, huge_pages_mb=4096, devices=(gpus,))


async def check_guests(cloud: Cloud) -> int:
    """Look that the guests hold different parts, and that their hosts have told of them; return how many there are."""
    usages = {host.usage.host: host.usage for host in await host_states(cloud.plane.transport)}
    number = 0
    for driver in cloud.plane.drivers.values():
        guests = await driver.guests()
        usage = usages[(await driver.facts()).hypervisor_hostname]
        empty = type(usage)(host=usage.host, inventory=usage.inventory, used={}, topology=usage.topology)
        room = room_of(empty)
        for guest in guests:
            assert guest.allocation is not None
            assert room.has(guest.allocation)
            room.take(guest.allocation)
        assert room.key == room_of(usage).key
        number += len(guests)
    return number


async def test_guests_have_cpus_pages_and_devices_of_their_own(tmp_path: Path) -> None:
    near = (devices(GPU, 1, "required"),)
    async with running_cloud(tmp_path, config(), cells=1, hosts=2) as cloud:
        uuids = await cloud.create(8, flavor=PINNED, devices=near)
        servers = await cloud.settled(uuids)
        assert [server.state for server in servers] == [State.ACTIVE] * 8
        await cloud.no_claims()
        assert await check_guests(cloud) == 8
        [ninth] = await cloud.create(flavor=PINNED, devices=near)
        [refused] = await cloud.settled([ninth])
        assert refused.state is State.ERROR
        assert refused.fault is not None
        assert "0 left by capacity" in refused.fault.message
        await cloud.delete(uuids[0])
        await cloud.gone(uuids[:1])
        await cloud.restart()
        [tenth] = await cloud.create(flavor=PINNED, devices=near)
        [built] = await cloud.settled([tenth])
        assert built.state is State.ACTIVE
        await cloud.no_claims()
        assert await check_guests(cloud) == 8
