"""What servers are placed by, asked for badly: 400 names the key, what it was and what was expected; nothing is made.

One cloud serves all of the table: every request over HTTP, as clients send it.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from skep.api.creating.hints import NAMES
from skep.config.pci import PciAlias, PciSettings
from skep.config.scheduler import SchedulerSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.placement.settings import DEFAULT_FILTERS
from skep.processes.all_in_one import AllInOneCloud

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSION = "2.96"
UUID = "11111111-1111-4111-8111-111111111111"


class Users:
    """A signed-in administrator, and what there is before anything is asked."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession, image: str) -> None:
        self.cloud = cloud
        self.session = session
        self.image = image
        self.group = ""
        self._numbers = itertools.count()

    async def flavor(self, extra_specs: dict[str, str]) -> str:
        """Make a flavor as clients do that ask for no microversion."""
        name = f"flavor-{next(self._numbers)}"
        facts = {"name": name, "id": name, "ram": 64, "vcpus": 4, "disk": 1}
        assert (await self.session.ask("POST", "/flavors", {"flavor": facts})).status_code == 200
        body = {"extra_specs": extra_specs}
        if extra_specs:
            assert (await self.session.ask("POST", f"/flavors/{name}/os-extra_specs", body)).status_code == 200
        return name

    async def image_with(self, properties: dict[str, str]) -> str:
        url, headers = f"{self.cloud.images_url}/v2/images", {"X-Auth-Token": self.session.token}
        body = {"name": "odd", "disk_format": "raw", "container_format": "bare", **properties}
        made = await self.session.client.post(url, json=body, headers=headers)
        assert made.status_code == 201, made.text
        image = str(made.json()["id"])
        headers["Content-Type"] = "application/octet-stream"
        sent = await self.session.client.put(f"{url}/{image}/file", content=b"image", headers=headers)
        assert sent.status_code == 204, sent.text
        return image

    async def create(
        self, hints: Any = None, flavor: str = "1", image: str = "", hints_as: str = "os:scheduler_hints", **more: Any
    ) -> tuple[int, str]:
        server = {"name": "one", "flavorRef": flavor, "imageRef": image or self.image, "networks": "none", **more}
        body: dict[str, Any] = {"server": server}
        if hints is not None:
            body[hints_as] = {key: self.group if value == "GROUP" else value for key, value in hints.items()}
        answer = await self.session.ask("POST", "/servers", body, version=VERSION)
        return answer.status_code, answer.text if answer.is_success else str(answer.json()["badRequest"]["message"])

    async def servers(self) -> int:
        answer = await self.session.ask("GET", "/servers?all_tenants=1", version=VERSION)
        return len(answer.json()["servers"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def users(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Users]:
    config = http_config(tmp_path_factory.mktemp("cloud"))
    filters = (*DEFAULT_FILTERS, "JsonFilter", "SimpleCIDRAffinityFilter", "VolumeFilter")
    config = msgspec.structs.replace(
        config,
        scheduler=SchedulerSettings(enabled_filters=filters),
        pci=PciSettings(alias=(PciAlias(name="gpu", vendor_id="10de", product_id="1eb8"),)),
    )
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        users = Users(cloud, session, found.json()["images"][0]["id"])
        body = {"server_group": {"name": "one", "policy": "soft-affinity"}}
        made = await session.ask("POST", "/os-server-groups", body, version=VERSION)
        users.group = made.json()["server_group"]["id"]
        yield users


def says(text: str, key: str, expected: str) -> None:
    """Check the one form of refusals: which key, what it was, what was expected."""
    assert text.startswith("Invalid input for "), text
    assert f" {key}. Value: " in text, text
    assert f". Expected: {expected}" in text, text


NESTED = "[" * 300 + "]" * 300

HINTS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"group": "web"}, "group", "a UUID"),
    ({"group": 7}, "group", "a UUID"),
    ({"group": None}, "group", "a UUID"),
    ({"group": [UUID, UUID]}, "group", "one UUID of a server group"),
    ({"group": [UUID]}, "group", "the UUID of a server group"),
    ({"group": UUID}, "group", "the UUID of a server group"),
    ({"same_host": "one"}, "same_host", "a UUID or a list, each a UUID"),
    ({"same_host": ""}, "same_host", "a UUID or a list, each a UUID"),
    ({"same_host": {"uuid": UUID}}, "same_host", "a UUID or a list, each a UUID"),
    ({"same_host": [UUID, "two"]}, "same_host[1]", "a UUID"),
    ({"different_host": "one"}, "different_host", "a UUID or a list, each a UUID"),
    ({"different_host": [7]}, "different_host[0]", "a UUID"),
    ({"different_host": True}, "different_host", "a UUID or a list, each a UUID"),
    ({"build_near_host_ip": "near"}, "build_near_host_ip", "an IPv4 address or an IPv6 address"),
    ({"build_near_host_ip": "10.0.0.256"}, "build_near_host_ip", "an IPv4 address or an IPv6 address"),
    ({"build_near_host_ip": 10}, "build_near_host_ip", "an IPv4 address or an IPv6 address"),
    ({"build_near_host_ip": "10.0.0.1", "cidr": "24"}, "cidr", "a text that matches ^/"),
    ({"build_near_host_ip": "10.0.0.1", "cidr": 24}, "cidr", "a text that matches ^/"),
    ({"build_near_host_ip": "10.0.0.1", "cidr": "/99"}, "cidr", "a width with which 10.0.0.1 is a network"),
    ({"build_near_host_ip": "fd00::1", "cidr": "/255.0.0.0"}, "cidr", "a width with which fd00::1 is a network"),
    ({"cidr": "/24"}, "cidr", "the hint build_near_host_ip beside it"),
    ({"query": "{"}, "query", "a query in JSON: no JSON"),
    ({"query": ""}, "query", "a query in JSON: no JSON"),
    ({"query": NESTED}, "query", "a query in JSON: "),
    ({"query": {"=": 1}}, "query", "a query in JSON: expected a list that begins with an operator"),
    ({"query": None}, "query", "a query in JSON: expected a list"),
    ({"query": '["like", "$host", "a"]'}, "query", "a query in JSON: there is no operator 'like'"),
    ({"query": ["=", "$hots", "a"]}, "query", "a query in JSON: hosts have no attribute '$hots'"),
    ({"query": ["=", "$host"]}, "query", "a query in JSON: '=' compares its first argument with at least one other"),
    ({"query": ["not"]}, "query", "a query in JSON: 'not' joins nothing"),
    ({"query": ["=", "$host", ["a"]]}, "query", "a query in JSON: expected a text, a number, true or false"),
    ({"query": ["=", "$host", *("a" * 200)]}, "query", "a query in JSON: more than"),
    ({"target_cell": "west"}, "target_cell", "the name or UUID of a cell"),
    ({"target_cell": ""}, "target_cell", "a text of 1 to 255 characters"),
    ({"target_cell": ["cell1"]}, "target_cell", "a text of 1 to 255 characters"),
    ({"different_cell": ["cell1", "west"]}, "different_cell", "the name or UUID of a cell"),
    ({"different_cell": [1]}, "different_cell[0]", "a text of 1 to 255 characters"),
    ({"spread": "zone:1"}, "spread", "the hint group beside it"),
    ({"group": "GROUP", "spread": "zone"}, "spread", "KEY:MAX_SKEW"),
    ({"group": "GROUP", "spread": "moon:1"}, "spread", "KEY:MAX_SKEW"),
    ({"group": "GROUP", "spread": "zone:0"}, "spread", "KEY:MAX_SKEW"),
    ({"group": "GROUP", "spread": ["zone:1"]}, "spread", "KEY:MAX_SKEW"),
    ({"group": "GROUP", "spread": "zone:1,zone:2"}, "spread", "KEY:MAX_SKEW or KEY:MAX_SKEW:hard|soft"),
    ({"lifetime": "soon"}, "lifetime", "how many seconds the server will live"),
    ({"lifetime": 0}, "lifetime", "how many seconds the server will live"),
    ({"anything": 2**64}, "anything", "numbers of at most 64 bits"),
    ({"anything": [{"deep": -(2**63) - 1}]}, "anything", "numbers of at most 64 bits"),
    ({"query": ["=", "$free_ram_mb", 10**30]}, "query", "numbers of at most 64 bits"),
    ({"lifetime": 1e300}, "lifetime", "how many seconds the server will live"),
    ({"same_host_as_volume": ""}, "same_host_as_volume", "the id of one volume"),
    ({"same_host_as_volume": [UUID]}, "same_host_as_volume", "the id of one volume"),
    ({"reservation": UUID}, "reservation", "no hint reservation: this cloud does not follow it, since"),
)


@pytest.mark.parametrize(("hints", "key", "expected"), HINTS)
async def test_hints(users: Users, hints: dict[str, Any], key: str, expected: str) -> None:
    before = await users.servers()
    for sent_as in NAMES:
        status, text = await users.create(hints, hints_as=sent_as)
        assert status == 400
        says(text, f"field/attribute {sent_as}.{key}", expected)
    assert await users.servers() == before


EXTRA_SPECS: tuple[tuple[dict[str, str], str, str], ...] = (
    ({"resources:NO_SUCH_CLASS": "1"}, "resources:NO_SUCH_CLASS", "a standard resource class, or CUSTOM_"),
    ({"resources:vgpu": "1"}, "resources:vgpu", "a standard resource class"),
    ({"resources1:CUSTOM_": "1"}, "resources1:CUSTOM_", "a standard resource class"),
    ({"resources:VGPU": "many"}, "resources:VGPU", "a whole number, 0 to 2147483647"),
    ({"resources:VGPU": "-1"}, "resources:VGPU", "a whole number, 0 to 2147483647"),
    ({"resources_GPU:VGPU": "9" * 20}, "resources_GPU:VGPU", "a whole number, 0 to 2147483647"),
    ({"trait:NO_SUCH_TRAIT": "required"}, "trait:NO_SUCH_TRAIT", "a standard trait, or CUSTOM_"),
    ({"trait:HW_CPU_X86_AVX": "preferred"}, "trait:HW_CPU_X86_AVX", "required or forbidden"),
    ({"trait:any_of": "HW_CPU_X86_AVX,fast"}, "trait:any_of", "a standard trait, or CUSTOM_"),
    ({"trait:any_of": ""}, "trait:any_of", "a standard trait, or CUSTOM_"),
    ({"trait1:HW_CPU_X86_AVX": "required"}, "trait1:HW_CPU_X86_AVX", "resources1:CLASS beside it"),
    ({"resources1:VGPU": "0"}, "resources1", "an amount above 0"),
    ({"resources1:VGPU": "1", "group_policy": "apart"}, "group_policy", "none or isolate"),
    ({f"resources{number}:VGPU": "1" for number in range(40)}, "resources", "at most 32 groups"),
    ({"hw:cpu_policy": "pinned"}, "hw:cpu_policy", "one of shared, dedicated, mixed"),
    ({"hw:cpu_policy": "mixed"}, "hw:cpu_policy", "hw:cpu_dedicated_mask beside it"),
    ({"hw:cpu_thread_policy": "require"}, "hw:cpu_thread_policy", "hw:cpu_policy dedicated or mixed beside it"),
    ({"hw:cpu_policy": "dedicated", "resources:VCPU": "4"}, "resources:VCPU", "nothing beside hw:cpu_policy"),
    ({"resources:PCPU": "3"}, "resources:PCPU", "the flavor's 4 VCPUs"),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-9"},
        "hw:cpu_dedicated_mask",
        "some of the flavor's 4 CPUs",
    ),
    ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "a-b"}, "hw:cpu_dedicated_mask", "a set of CPUs below"),
    ({"hw:emulator_threads_policy": "own"}, "hw:emulator_threads_policy", "share or isolate"),
    ({"hw:numa_nodes": "many"}, "hw:numa_nodes", "a whole number, 1 to 64"),
    ({"hw:numa_nodes": "3"}, "hw:numa_nodes", "a number of cells that share the flavor's 4 CPUs equally"),
    ({"hw:numa_nodes": "2", "hw:numa_cpus.5": "0"}, "hw:numa_cpus.5", "a cell of the guest, 0 to 1"),
    ({"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-3"}, "hw:numa_cpus.N", "hw:numa_cpus.N and hw:numa_mem.N for each"),
    ({"hw:mem_page_size": "huge"}, "hw:mem_page_size", "small, large, any, or a size"),
    ({"hw:pci_numa_affinity_policy": "near"}, "hw:pci_numa_affinity_policy", "one of legacy, preferred"),
    ({"hw:tpm_secret_security": "secret"}, "hw:tpm_secret_security", "one of user, host, deployment"),
    ({"hw:virtio_packed_ring": "perhaps"}, "hw:virtio_packed_ring", "true or false"),
    ({"pci_passthrough:alias": "tpu:1"}, "pci_passthrough:alias", "aliases that this cloud has; there is no 'tpu'"),
    ({"pci_passthrough:alias": "gpu:some"}, "pci_passthrough:alias", "NAME:COUNT"),
    ({"pci_passthrough:alias": "gpu"}, "pci_passthrough:alias", "NAME:COUNT"),
    ({"capabilities:hypervisor_version": ">= new"}, "capabilities:hypervisor_version", "a value, or one of = == "),
    ({"capabilities:cpu_info:arch": "<near> x"}, "capabilities:cpu_info:arch", "a value, or one of = == "),
    (
        {"aggregate_instance_extra_specs:ssd": "=> 1"},
        "aggregate_instance_extra_specs:ssd",
        "a value, or one of = == ",
    ),
    ({"volume:free_gb": "plenty"}, "volume:free_gb", "a number, after one of"),
    ({"volume:Free": "1"}, "volume:Free", "a key of volume: and a field"),
    ({"spread:zone": "even"}, "spread:zone", "MAX_SKEW or MAX_SKEW:hard|soft"),
    ({"spread:moon": "1"}, "spread:moon", "MAX_SKEW or MAX_SKEW:hard|soft, the key one of host, rack, zone"),
)


@pytest.mark.parametrize(("specs", "key", "expected"), EXTRA_SPECS)
async def test_extra_specs_of_flavors_that_nobody_checked(
    users: Users, specs: dict[str, str], key: str, expected: str
) -> None:
    """Before 2.86 a flavor may have anything: it is told when a server is asked for."""
    before = await users.servers()
    status, text = await users.create({"group": users.group}, flavor=await users.flavor(specs))
    assert status == 400
    says(text, f"extra spec {key}", expected)
    assert await users.servers() == before


CHECKED = (
    *((specs, key) for specs, key, _ in EXTRA_SPECS if len(specs) == 1),
    ({"hw:cpu_polcy": "dedicated"}, "hw:cpu_polcy"),
    ({"hw:nothing": "1"}, "hw:nothing"),
    ({"quota:cpu_shares": "many"}, "quota:cpu_shares"),
    ({"hw_rng:allowed": "perhaps"}, "hw_rng:allowed"),
    ({"os:secure_boot": "maybe"}, "os:secure_boot"),
    ({"resources:": "1"}, "resources:"),
    ({"traitß:HW_CPU_X86_AVX": "required"}, "traitß:HW_CPU_X86_AVX"),
)
FOUND_LATER = {
    "trait1:HW_CPU_X86_AVX": "resources may be added later",
    "resources1": "an amount of 0 is one",
    "hw:cpu_thread_policy": "the policy may be added later",
    "resources:PCPU": "the flavor's VCPUs are not looked at",
    "pci_passthrough:alias": "aliases are the cloud's",
    "hw:cpu_policy": "mixed needs a mask, which may be added later",
    "hw:numa_nodes": "the flavor's VCPUs are not looked at",
}
"""What says nothing wrong by itself."""


@pytest.mark.parametrize(("specs", "key"), CHECKED)
async def test_extra_specs_are_checked_where_they_are_set(users: Users, specs: dict[str, str], key: str) -> None:
    flavor = await users.flavor({})
    for method, path, body in (
        ("POST", f"/flavors/{flavor}/os-extra_specs", {"extra_specs": specs}),
        ("PUT", f"/flavors/{flavor}/os-extra_specs/{next(iter(specs))}", specs),
    ):
        answer = await users.session.ask(method, path, body, version="2.86")
        if answer.status_code == 200:
            assert key in FOUND_LATER
            continue
        assert answer.status_code == 400, answer.text
        text = answer.json()["badRequest"]["message"]
        assert key in text, text
        assert "Expected: " in text, text
        shown = await users.session.ask("GET", f"/flavors/{flavor}/os-extra_specs")
        assert shown.json()["extra_specs"] == {}


async def test_a_name_that_is_nearly_known_is_told(users: Users) -> None:
    flavor = await users.flavor({})
    body = {"extra_specs": {"hw:cpu_polcy": "dedicated"}}
    answer = await users.session.ask("POST", f"/flavors/{flavor}/os-extra_specs", body, version="2.86")
    says(
        answer.json()["badRequest"]["message"], "extra spec hw:cpu_polcy", "a key that is known, perhaps hw:cpu_policy"
    )


async def test_unknown_names_on_older_flavors_mean_nothing_as_in_nova(users: Users) -> None:
    flavor = await users.flavor({"hw:cpu_polcy": "dedicated", "quota:anything": "x", "mine": "<own> y", "a:b": ""})
    status, text = await users.create(flavor=flavor)
    assert status == 202, text
    await users.session.ask("DELETE", f"/servers/{msgspec.json.decode(text)['server']['id']}")

    async def gone() -> bool:
        return await users.servers() == 0

    await eventually(gone, "the server is gone")


IMAGE_PROPERTIES: tuple[tuple[dict[str, str], str, str], ...] = (
    ({"trait:NO_SUCH_TRAIT": "required"}, "trait:NO_SUCH_TRAIT", "after trait: a standard trait"),
    ({"trait:HW_CPU_X86_AVX": "preferred"}, "trait:HW_CPU_X86_AVX", "required or forbidden"),
    ({"hw_cpu_policy": "pinned"}, "hw_cpu_policy", "one of shared, dedicated, mixed"),
    ({"hw_numa_nodes": "many"}, "hw_numa_nodes", "a whole number, 1 to 64"),
    ({"hw_numa_nodes": "9" * 250}, "hw_numa_nodes", "a whole number, 1 to 64"),
    ({"hw_mem_page_size": "large"}, "hw_mem_page_size", "a flavor with hw:mem_page_size large or any"),
    ({"img_hv_requested_version": "new"}, "img_hv_requested_version", "conditions on a version"),
)


@pytest.mark.parametrize(("properties", "key", "expected"), IMAGE_PROPERTIES)
async def test_properties_of_images(users: Users, properties: dict[str, str], key: str, expected: str) -> None:
    before = await users.servers()
    status, text = await users.create(image=await users.image_with(properties))
    assert status == 400
    says(text, f"image property {key}", expected)
    assert await users.servers() == before


async def test_flavor_and_image_say_the_same_of_one_thing(users: Users) -> None:
    flavor = await users.flavor({"hw:sound_model": "ac97", "hw:pmu": "yes"})
    status, text = await users.create(flavor=flavor, image=await users.image_with({"hw_sound_model": "ich9"}))
    assert status == 400
    says(text, "image property hw_sound_model", "what the flavor says of it, ac97")
    agreeing = await users.image_with({"hw_sound_model": "ac97", "hw_pmu": "True"})
    status, text = await users.create(flavor=flavor, image=agreeing)
    assert status == 202, text


WHERE: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"flavorRef": "none"}, "flavorRef", "the id of a flavor"),
    ({"imageRef": UUID}, "imageRef", "the id of an image"),
    ({"availability_zone": "moon"}, "availability_zone", "an availability zone with hosts"),
    ({"availability_zone": "nova:nowhere"}, "availability_zone", "the name of a compute host"),
    ({"availability_zone": "a:b:c:d"}, "availability_zone", "ZONE, ZONE:HOST or ZONE:HOST:NODE"),
    ({"availability_zone": 7}, "availability_zone", "a text of 1 to 255 characters"),
    ({"host": "nowhere"}, "host", "the name of a compute host"),
    ({"hypervisor_hostname": "nowhere"}, "hypervisor_hostname", "the name of a hypervisor"),
    ({"min_count": 3, "max_count": 2}, "min_count", "at most max_count, 2"),
)


@pytest.mark.parametrize(("more", "key", "expected"), WHERE)
async def test_what_names_where(users: Users, more: dict[str, Any], key: str, expected: str) -> None:
    before = await users.servers()
    status, text = await users.create(**more)
    assert status == 400
    says(text, f"field/attribute server.{key}", expected)
    assert await users.servers() == before


METADATA = (
    ("cpu_allocation_ratio", "abc", "a number, at least 0"),
    ("ram_allocation_ratio", "-1", "a number, at least 0"),
    ("disk_allocation_ratio", "nan", "a number, at least 0"),
    ("reserved_host_memory_mb", "some", "a number, at least 0"),
    ("max_instances_per_host", "1.5", "a whole number, at least 0"),
    ("max_io_ops_per_host", "-3", "a whole number, at least 0"),
    ("cpu_weight_multiplier", "heavy", "a number"),
    ("trait:NO_SUCH_TRAIT", "required", "after trait: a standard trait"),
    ("trait:CUSTOM_GOLD", "yes", "required"),
    ("availability_zone", "", "a zone's name"),
)


@pytest.mark.parametrize(("key", "value", "expected"), METADATA)
async def test_metadata_of_aggregates(users: Users, key: str, value: str, expected: str) -> None:
    made = await users.session.ask("POST", "/os-aggregates", {"aggregate": {"name": f"{key}-{value}"}})
    path = f"/os-aggregates/{made.json()['aggregate']['id']}"
    body = {"set_metadata": {"metadata": {"anything": "at all", key: value}}}
    answer = await users.session.ask("POST", f"{path}/action", body)
    assert answer.status_code == 400, answer.text
    says(answer.json()["badRequest"]["message"], f"field/attribute set_metadata.metadata.{key}", expected)
    assert (await users.session.ask("GET", path)).json()["aggregate"]["metadata"] == {}
    removal = {"set_metadata": {"metadata": {key: None}}}
    assert (await users.session.ask("POST", f"{path}/action", removal)).status_code == 200
