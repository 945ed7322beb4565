"""Nonsense about placement, drawn from seeds and sent to a whole cloud: no answer is a 5xx, and no server hangs.

What is refused is refused with a 4xx. What is taken, however odd, ends ACTIVE or in ERROR like anything else.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.scheduler import SchedulerSettings
from skep.config.sections import QuotaSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.placement.settings import DEFAULT_FILTERS
from skep.processes.all_in_one import AllInOneCloud

REQUESTS = 100
UUID = "11111111-1111-4111-8111-111111111111"
FILTERS = (
    *(*DEFAULT_FILTERS, "JsonFilter", "SimpleCIDRAffinityFilter", "VolumeFilter", "AggregateNumInstancesFilter"),
    *("AggregateIoOpsFilter", "AggregateMultiTenancyIsolation", "AggregateTypeAffinityFilter"),
    *("AggregateImagePropertiesIsolation", "IsolatedHostsFilter", "MetricsFilter"),
)

TEXTS = (
    *("", " ", "0", "1", "-1", "1.5", "1e999", "nan", "inf", "9" * 30, "9" * 255, "٣", "true", "None", "x" * 255),
    *(
        "required",
        "forbidden",
        "dedicated",
        "isolate",
        "any",
        "2MB",
        "0-3",
        "^0",
        "0-9999999999",
        "1-0",
        "-",
        ",",
        ",,",
    ),
    *(
        ">= 4",
        "<or> a <or> b",
        "<in>",
        "s== x",
        "<all-in> a b",
        "== ",
        "$host",
        "[]",
        "{}",
        '["="',
        "/24",
        "/",
        ":",
        "::",
    ),
    *(
        "10.0.0.1",
        "fd00::1",
        "zone:1:hard",
        "host:2",
        UUID,
        "HW_CPU_X86_AVX",
        "CUSTOM_A,CUSTOM_B",
        "ünïcödé",
        "\u202e",
        "a\tb",
    ),
    *(
        "gpu:1",
        "nova",
        "cell1",
        "cell1-host1",
        "nova:cell1-host1",
        "%s%n",
        "' OR 1=1",
        "../..",
        "\\",
        '"',
        "<b>",
        "\U0001d54f" * 60,
    ),
)
CLASSES = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "VGPU", "CUSTOM_A", "NO_SUCH", "vgpu", "", "CUSTOM_", "A:B")
GROUPS = ("", "1", "2", "_A", "A-B", "x" * 64, "x" * 65, "é", " ")
HW = (
    *("cpu_policy", "cpu_thread_policy", "cpu_dedicated_mask", "cpu_realtime_mask", "emulator_threads_policy"),
    *("numa_nodes", "numa_cpus.0", "numa_cpus.1", "numa_cpus.x", "numa_mem.0", "numa_mem.99999999999", "mem_page_size"),
    *(
        "pci_numa_affinity_policy",
        "tpm_version",
        "tpm_secret_security",
        "virtio_packed_ring",
        "sound_model",
        "nothing",
        "",
    ),
)
HINTS = (
    *("group", "same_host", "different_host", "query", "build_near_host_ip", "cidr", "target_cell", "different_cell"),
    *("spread", "lifetime", "same_host_as_volume", "reservation", "anything", ""),
)
METADATA = (
    *("cpu_allocation_ratio", "ram_allocation_ratio", "reserved_host_cpus", "reserved_host_disk_mb", "instance_type"),
    *(
        "max_instances_per_host",
        "max_io_ops_per_host",
        "cpu_weight_multiplier",
        "availability_zone",
        "filter_tenant_id",
    ),
    *("trait:CUSTOM_A", "trait:", "rack", "hw_cpu_policy", "anything"),
)
ATTRIBUTES = ("$host", "$free_ram_mb", "$cpu_info.arch", "$metrics.x", "$stats", "$nothing", "$", "$host.a.b")


class Nonsense:
    """Draws values that nobody asked for."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def pick(self, things: Any) -> Any:
        return self.dice.choice(things)

    def text(self) -> str:
        return str(self.pick(TEXTS))

    def value(self, deep: int = 2) -> Any:
        kinds: list[Callable[[], Any]] = [self.text, self.text, self.text, self._number, self._constant]
        if deep:
            kinds += [lambda: self._list(deep - 1), lambda: self._object(deep - 1)]
        return self.pick(kinds)()

    def _number(self) -> float:
        return float(self.dice.choice((0, -1, 1.5, 1e300))) if self.dice.random() < 0.5 else self.dice.randrange(2**70)

    def _constant(self) -> Any:
        return self.pick((None, True, False))

    def _list(self, deep: int) -> list[Any]:
        return [self.value(deep) for _ in range(self.dice.randrange(4))]

    def _object(self, deep: int) -> dict[str, Any]:
        return {self.text(): self.value(deep) for _ in range(self.dice.randrange(3))}

    def query(self, deep: int = 3) -> Any:
        if not deep or self.dice.random() < 0.1:
            return self.value()
        how = self.pick(("=", "<", ">=", "in", "and", "or", "not", "like", "", 1))
        if how in ("and", "or", "not"):
            return [how, *(self.query(deep - 1) for _ in range(self.dice.randrange(4)))]
        return [how, *(self.pick((*ATTRIBUTES, self.value(1))) for _ in range(self.dice.randrange(4)))]

    def hints(self) -> Any:
        if self.dice.random() < 0.05:
            return self.value()
        hints = {name: self.value() for name in self.dice.sample(HINTS, self.dice.randrange(1, 4))}
        if "query" in hints and self.dice.random() < 0.8:
            query = self.query()
            hints["query"] = query if self.dice.random() < 0.5 else msgspec.json.encode(query).decode()
        return hints

    def extra_specs(self) -> dict[str, str]:
        return {self._key(): self.text() for _ in range(self.dice.randrange(1, 4))}

    def _key(self) -> str:
        kind, group, name = (
            self.pick(("resources", "trait", "hw", "capabilities", "mine")),
            self.pick(GROUPS),
            self.text(),
        )
        keys = {
            "resources": f"resources{group}:{self.pick(CLASSES)}",
            "trait": f"trait{group}:{self.pick((*CLASSES, 'HW_CPU_X86_AVX', 'any_of', 'any_of.a', name))}",
            "hw": f"hw:{self.pick(HW)}",
            "capabilities": f"capabilities:{self.pick((*ATTRIBUTES, 'hypervisor_version', 'cpu_info:features', name))}",
        }
        others = (
            "group_policy",
            "pci_passthrough:alias",
            "volume:free_gb",
            f"volume:{name}",
            f"spread:{name}",
            "spread:zone",
        )
        scoped = (
            "aggregate_instance_extra_specs:ssd",
            f"aggregate_instance_extra_specs:{name}",
            "accel:device_profile",
            name,
        )
        return str(keys.get(kind) or self.pick((*others, *scoped)))

    def properties(self) -> dict[str, str]:
        names = [f"hw_{name}" for name in HW] + [f"trait:{name}" for name in CLASSES]
        names += [
            "img_hv_requested_version",
            "hw_architecture",
            "img_hv_type",
            "hw_vm_mode",
            "hw_disk_bus",
            self.text(),
        ]
        return {self.pick(names): self.text() for _ in range(self.dice.randrange(1, 4))}


class Users:
    """Sends nonsense, and counts the answers."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession, image: str, nonsense: Nonsense) -> None:
        self.cloud = cloud
        self.session = session
        self.image = image
        self.nonsense = nonsense
        self.statuses: Counter[int] = Counter()

    async def ask(self, method: str, path: str, body: Any = None, *, url: str | None = None) -> Any:
        """Send a request; return what was answered, None where it was refused."""
        version = self.nonsense.pick(("2.1", "2.53", "2.86", "2.96", "2.104"))
        headers = {"X-Auth-Token": self.session.token, "OpenStack-API-Version": f"compute {version}"}
        content = msgspec.json.encode(body) if body is not None else None
        headers["Content-Type"] = "application/json"
        answer = await self.session.client.request(method, url or path, content=content, headers=headers)
        self.statuses[answer.status_code] += 1
        assert answer.status_code < 500, (method, path, body, answer.text)
        assert answer.is_success or len(answer.text) < 3000, (method, path, body, answer.text)
        return answer.json() if answer.is_success and answer.content else None

    async def flavor(self, number: int) -> str:
        facts = {"name": f"f{number}", "id": f"f{number}", "ram": 64, "vcpus": 2, "disk": 1}
        await self.ask("POST", "/flavors", {"flavor": facts})
        await self.ask("POST", f"/flavors/f{number}/os-extra_specs", {"extra_specs": self.nonsense.extra_specs()})
        return f"f{number}"

    async def image_with_properties(self) -> str:
        url = f"{self.cloud.images_url}/v2/images"
        body = {"name": "odd", "disk_format": "raw", "container_format": "bare", **self.nonsense.properties()}
        made = await self.ask("POST", "", body, url=url)
        if made is None:
            return self.image
        headers = {"X-Auth-Token": self.session.token, "Content-Type": "application/octet-stream"}
        await self.session.client.put(f"{url}/{made['id']}/file", content=b"image", headers=headers)
        return str(made["id"])

    async def create(self, number: int) -> None:
        nonsense = self.nonsense
        flavor = await self.flavor(number) if nonsense.dice.random() < 0.5 else "1"
        image = await self.image_with_properties() if nonsense.dice.random() < 0.2 else self.image
        server: dict[str, Any] = {"name": f"s{number}", "flavorRef": flavor, "imageRef": image, "networks": "none"}
        if nonsense.dice.random() < 0.2:
            server[nonsense.pick(("availability_zone", "host", "min_count", "hypervisor_hostname"))] = nonsense.value()
        body: dict[str, Any] = {"server": server}
        if nonsense.dice.random() < 0.7:
            body["os:scheduler_hints"] = nonsense.hints()
        await self.ask("POST", "/servers", body)

    async def aggregate(self, number: int) -> None:
        nonsense = self.nonsense
        made = await self.ask("POST", "/os-aggregates", {"aggregate": {"name": f"a{number}"}})
        path = f"/os-aggregates/{made['aggregate']['id']}/action"
        metadata = {nonsense.pick(METADATA): nonsense.value(0) for _ in range(3)}
        await self.ask("POST", path, {"set_metadata": {"metadata": metadata}})
        for key in METADATA:
            await self.ask("POST", path, {"set_metadata": {"metadata": {key: nonsense.text()}}})
        await self.ask("POST", path, {"add_host": {"host": nonsense.pick(("cell1-host1", "cell1-host2"))}})

    async def dry_run(self, number: int) -> None:
        nonsense = self.nonsense
        flavor = await self.flavor(number)
        body = {"flavor": flavor, "scheduler_hints": {nonsense.pick(HINTS): nonsense.text()}}
        await self.ask("POST", "", body, url=f"{self.admin_url}/select-destinations")
        await self.ask("GET", "", url=f"{self.admin_url}/capacity?flavor={flavor}")

    @property
    def admin_url(self) -> str:
        return self.cloud.api_url.replace("/v2.1", "/admin/v1")

    async def settled(self) -> bool:
        answer = await self.session.ask("GET", "/servers/detail?all_tenants=1&limit=1000")
        return all(server["status"] in ("ACTIVE", "ERROR") for server in answer.json()["servers"])


@pytest.fixture(params=range(2))
async def users(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Users]:
    quota = QuotaSettings(instances=-1, cores=-1, ram=-1)
    config = http_config(tmp_path, quota=quota)
    config = msgspec.structs.replace(config, scheduler=SchedulerSettings(enabled_filters=FILTERS))
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield Users(cloud, session, found.json()["images"][0]["id"], Nonsense(request.param))


async def test_nothing_is_answered_with_5xx_and_nothing_hangs(users: Users) -> None:
    for number in range(REQUESTS):
        await users.nonsense.pick((users.create, users.create, users.create, users.create, users.dry_run))(number)
        if number % 25 == 0:
            await users.aggregate(number)
    assert users.statuses[400] > REQUESTS / 5
    assert users.statuses[202] > 5
    await eventually(users.settled, "every server is ACTIVE or in ERROR")
