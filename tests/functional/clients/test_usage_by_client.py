"""Commands of the real `openstack` client for what projects used, and for hosts as old clients see them."""

from __future__ import annotations

from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import openstack, openstack_quiet, refusal


async def test_usage(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    await openstack(
        yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "used", cloud="skep-demo"
    )
    shown = await openstack(yaml, "usage", "show", cloud="skep-demo")
    assert [one["name"] for one in shown["Servers"]] == ["used"]
    assert shown["RAM MB-Hours"] > 0
    (listed,) = await openstack(yaml, "usage", "list")
    assert listed["RAM MB-Hours"] >= shown["RAM MB-Hours"]
    await openstack_quiet(yaml, "server", "delete", "--wait", "used", cloud="skep-demo")
    (gone,) = (await openstack(yaml, "usage", "show", cloud="skep-demo"))["Servers"]
    assert gone["state"] == "terminated"
    assert "403" in await refusal(yaml, "usage", "list", cloud="skep-demo")


async def test_hosts(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    listed = await openstack(yaml, "host", "list", "--zone", "nova")
    assert {one["Service"] for one in listed} == {"compute"}
    name = listed[0]["Host Name"]
    shown = await openstack(yaml, "host", "show", name)
    assert [one["Project"] for one in shown[:2]] == ["(total)", "(used_now)"]
    for word, status in (("--disable", "disabled"), ("--enable", "enabled")):
        await openstack_quiet(yaml, "host", "set", word, name)
        services = await openstack(yaml, "compute", "service", "list", "--host", name)
        assert [one["Status"] for one in services] == [status]
    assert "501" in await refusal(yaml, "host", "set", "--enable-maintenance", name)
