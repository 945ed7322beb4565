from __future__ import annotations

import pytest

from skep_lab.compute_api.api import ApiUnderTest


async def test_services_by_host(api: ApiUnderTest) -> None:
    await api.map_host("host-1")
    await api.map_host("host-2")
    listed = (await api.good("GET", "/os-hosts"))["hosts"]
    assert listed == [{"host_name": f"host-{number}", "service": "compute", "zone": "nova"} for number in (1, 2)]
    assert await api.good("GET", "/os-hosts?zone=nova&x=y") == {"hosts": listed}
    assert await api.good("GET", "/os-hosts?zone=internal") == {"hosts": []}


async def test_what_a_host_has_and_uses(api: ApiUnderTest) -> None:
    await api.map_host("host-1", used={"VCPU": 3, "MEMORY_MB": 1024, "DISK_GB": 7})
    shown = [one["resource"] for one in (await api.good("GET", "/os-hosts/host-1"))["host"]]
    total = {"host": "host-1", "project": "(total)", "cpu": 8, "memory_mb": 16384, "disk_gb": 100}
    used = {"host": "host-1", "project": "(used_now)", "cpu": 3, "memory_mb": 1536, "disk_gb": 7}
    none = {"host": "host-1", "project": "(used_max)", "cpu": 0, "memory_mb": 0, "disk_gb": 0}
    assert shown == [total, used, none]
    await api.map_host("silent", held=False)
    (only,) = (await api.good("GET", "/os-hosts/silent"))["host"]
    assert only["resource"]["project"] == "(used_max)"


async def test_taking_new_servers_or_none(api: ApiUnderTest) -> None:
    await api.map_host("host-1")
    for word, status in (("Disable", "disabled"), ("enable", "enabled")):
        changed = await api.good("PUT", "/os-hosts/host-1", {"status": word})
        assert changed == {"host": "host-1", "status": status}
        (service,) = (await api.good("GET", "/os-services"))["services"]
        assert service["status"] == status


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/os-hosts/host-1", {"maintenance_mode": "enable"}, 501),
        ("PUT", "/os-hosts/host-1", {"status": "disable", "maintenance_mode": "enable"}, 501),
        ("PUT", "/os-hosts/host-1", {}, 400),
        ("PUT", "/os-hosts/host-1", {"status": "off"}, 400),
        ("PUT", "/os-hosts/host-1", {"status": "disable", "more": 1}, 400),
        ("PUT", "/os-hosts/none", {"status": "disable"}, 404),
        ("GET", "/os-hosts/none", None, 404),
        ("GET", "/os-hosts/host-1/startup", None, 501),
        ("GET", "/os-hosts/host-1/shutdown", None, 501),
        ("GET", "/os-hosts/host-1/reboot", None, 501),
        ("GET", "/os-hosts/none/reboot", None, 404),
    ],
)
async def test_what_is_refused_changes_nothing(
    api: ApiUnderTest, method: str, path: str, body: object, status: int
) -> None:
    await api.map_host("host-1")
    assert (await api.ask(method, path, body)).status_code == status
    (service,) = (await api.good("GET", "/os-services"))["services"]
    assert service["status"] == "enabled"


async def test_they_end_with_2_42(api: ApiUnderTest) -> None:
    assert (await api.ask("GET", "/os-hosts", version="2.42")).status_code == 200
    assert "is not supported" in (await api.ask("GET", "/os-hosts", version="2.43")).text
