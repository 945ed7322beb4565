"""Commands of the real `openstack` client for what is beside servers: flavors, aggregates, hypervisors, groups."""

from __future__ import annotations

from skep.contracts.eventually import eventually
from skep.domain.image_caching import IN_THE_CACHE
from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import openstack, openstack_quiet, refusal


async def test_flavors(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    await openstack(yaml, "flavor", "create", "--ram", "128", "--disk", "1", "--private", "mine")
    await openstack_quiet(
        yaml,
        "flavor",
        "set",
        "--property",
        "hw:cpu_policy=shared",
        "--description",
        "small",
        "--project",
        "demo",
        "mine",
    )
    shown = await openstack(yaml, "flavor", "show", "mine")
    assert shown["properties"] == {"hw:cpu_policy": "shared"}
    assert shown["description"] == "small"
    assert len(shown["access_project_ids"]) == 1
    assert "mine" in {one["Name"] for one in await openstack(yaml, "flavor", "list", cloud="skep-demo")}
    await openstack_quiet(yaml, "flavor", "unset", "--property", "hw:cpu_policy", "--project", "demo", "mine")
    shown = await openstack(yaml, "flavor", "show", "mine")
    assert (shown["properties"], shown["access_project_ids"]) == ({}, [])
    await openstack_quiet(yaml, "flavor", "delete", "mine")
    assert "No Flavor found" in await refusal(yaml, "flavor", "show", "mine")


async def test_aggregates(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    await openstack(yaml, "aggregate", "create", "--zone", "west", "--property", "ssd=true", "racks")
    await openstack(yaml, "aggregate", "add", "host", "racks", "cell1-host1")
    await openstack_quiet(yaml, "aggregate", "set", "--name", "rows", "--property", "gpu=no", "racks")
    shown = await openstack(yaml, "aggregate", "show", "rows")
    assert (shown["hosts"], shown["properties"]) == (["cell1-host1"], {"ssd": "true", "gpu": "no"})
    await openstack_quiet(yaml, "aggregate", "unset", "--property", "gpu", "rows")
    listed = await openstack(yaml, "aggregate", "list", "--long")
    assert [(one["Name"], one["Properties"]) for one in listed] == [("rows", {"ssd": "true"})]
    await openstack_quiet(yaml, "aggregate", "cache", "image", "rows", "tiny")

    async def cached() -> bool:
        [counted] = shared_cloud.metrics.images_precached.collect()
        return sum(one.value for one in counted.samples if one.labels["outcome"] in IN_THE_CACHE) == 1

    await eventually(cached, "the host has the image")
    await openstack(yaml, "aggregate", "remove", "host", "rows", "cell1-host1")
    await openstack_quiet(yaml, "aggregate", "delete", "rows")
    assert await openstack(yaml, "aggregate", "list") == []


async def test_hypervisors_and_their_sums(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    first = (await openstack(yaml, "hypervisor", "list"))[0]
    shown = await openstack(yaml, "hypervisor", "show", first["Hypervisor Hostname"])
    assert (shown["id"], shown["state"]) == (first["ID"], "up")
    sums = await openstack(yaml, "hypervisor", "stats", "show")
    assert sums["count"] == 6


async def test_server_groups(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    made = await openstack(yaml, "server", "group", "create", "--policy", "soft-affinity", "near")
    assert (await openstack(yaml, "server", "group", "show", "near"))["id"] == made["id"]
    assert [one["Name"] for one in await openstack(yaml, "server", "group", "list")] == ["near"]
    await openstack_quiet(yaml, "server", "group", "delete", "near")
    assert await openstack(yaml, "server", "group", "list") == []


async def test_quotas(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    await openstack_quiet(yaml, "quota", "set", "--cores", "7", "demo")

    async def cores() -> object:
        shown = await openstack(yaml, "quota", "show", "--compute", "demo")
        return {one["Resource"]: one["Limit"] for one in shown}["cores"]

    assert await cores() == 7
    listed = await openstack(yaml, "quota", "list", "--compute")
    assert [one["Cores"] for one in listed] == [7]
    await openstack_quiet(yaml, "quota", "delete", "--compute", "demo")
    assert await cores() == 20


async def test_properties_of_a_server_are_taken_away(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    create = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--property", "a=b", "--tag", "blue")
    await openstack(yaml, *create, "--description", "first", "--wait", "one")
    await openstack_quiet(yaml, "server", "unset", "--property", "a", "--tag", "blue", "--description", "one")
    shown = await openstack(yaml, "server", "show", "one")
    assert (shown["properties"], shown["tags"], shown["description"]) == ({}, [], "")
    assert shown["id"] in await openstack_quiet(yaml, "project", "cleanup", "--dry-run", "--auth-project")
