from __future__ import annotations

import asyncio

from skep.api.operator_state import number_of
from skep.contracts.eventually import PATIENCE
from skep.domain.ids import new_uuid
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU
from skep_lab.compute_api.api import ApiUnderTest

COMPUTE = {"binary": "nova-compute"}


class TestHypervisors:
    async def test_identifiers_are_numbers_before_2_53(self, api: ApiUnderTest) -> None:
        first, second = await api.map_host("h1"), await api.map_host("h2", up=False)
        old = (await api.good("GET", "/os-hypervisors"))["hypervisors"]
        assert old == [
            {"id": number_of(first), "hypervisor_hostname": "h1", "state": "up", "status": "enabled"},
            {"id": number_of(second), "hypervisor_hostname": "h2", "state": "down", "status": "enabled"},
        ]
        new = (await api.good("GET", "/os-hypervisors", version="2.53"))["hypervisors"]
        assert [one["id"] for one in new] == [first, second]
        assert (await api.good("GET", f"/os-hypervisors/{number_of(second)}"))["hypervisor"]["service"]["host"] == "h2"
        shown = (await api.good("GET", f"/os-hypervisors/{first}", version="2.53"))["hypervisor"]
        assert shown["service"] == {"id": first, "host": "h1", "disabled_reason": None}
        assert (await api.ask("GET", "/os-hypervisors/3")).status_code == 404
        assert (await api.ask("GET", "/os-hypervisors/1", version="2.53")).status_code == 400
        assert (await api.ask("GET", f"/os-hypervisors/{new_uuid()}", version="2.53")).status_code == 404

    async def test_figures_until_2_87(self, api: ApiUnderTest) -> None:
        node = await api.map_host("h1", used={VCPU: 3, MEMORY_MB: 1000, DISK_GB: 40}, servers=3)
        path = f"/os-hypervisors/{number_of(node)}"
        old = (await api.good("GET", path))["hypervisor"]
        assert (old["vcpus"], old["vcpus_used"]) == (8, 3)
        assert (old["memory_mb"], old["memory_mb_used"], old["free_ram_mb"]) == (16384, 1512, 14872)
        assert (old["local_gb"], old["local_gb_used"], old["free_disk_gb"]) == (100, 40, 60)
        assert (old["running_vms"], old["cpu_info"]) == (3, '{"arch": "x86_64"}')
        parsed = (await api.good("GET", path, version="2.28"))["hypervisor"]
        assert parsed["cpu_info"] == {"arch": "x86_64"}
        slim = (await api.good("GET", f"/os-hypervisors/{node}", version="2.88"))["hypervisor"]
        assert set(slim) == {
            "id",
            "hypervisor_hostname",
            "state",
            "status",
            "hypervisor_type",
            "hypervisor_version",
            "host_ip",
            "service",
            "uptime",
        }
        sums = (await api.good("GET", "/os-hypervisors/statistics"))["hypervisor_statistics"]
        assert (sums["count"], sums["vcpus"], sums["running_vms"]) == (1, 8, 3)
        uptime = (await api.good("GET", f"/os-hypervisors/{node}/uptime", version="2.53"))["hypervisor"]
        assert uptime["uptime"] == "up 1 day"
        assert (await api.ask("GET", f"/os-hypervisors/{node}/uptime", version="2.88")).status_code == 404

    async def test_searches_and_pages(self, api: ApiUnderTest) -> None:
        nodes = [await api.map_host(name) for name in ("alpha", "beta", "alphabet")]
        found = (await api.good("GET", "/os-hypervisors/alpha/search"))["hypervisors"]
        assert [one["hypervisor_hostname"] for one in found] == ["alpha", "alphabet"]
        assert (await api.ask("GET", "/os-hypervisors/gamma/search")).status_code == 404
        assert "servers" not in (await api.good("GET", "/os-hypervisors/beta/servers"))["hypervisors"][0]
        pattern = "/os-hypervisors?hypervisor_hostname_pattern="
        assert len((await api.good("GET", f"{pattern}bet", version="2.53"))["hypervisors"]) == 2
        assert (await api.ask("GET", f"{pattern}x", version="2.53")).status_code == 404
        assert (await api.ask("GET", f"{pattern}bet&limit=1", version="2.53")).status_code == 400
        page = await api.good("GET", "/os-hypervisors?limit=2", version="2.53")
        assert [one["id"] for one in page["hypervisors"]] == nodes[:2]
        assert page["hypervisors_links"][0]["href"].endswith(f"/os-hypervisors?limit=2&marker={nodes[1]}")
        rest = await api.good("GET", f"/os-hypervisors?marker={nodes[1]}", version="2.53")
        assert [one["id"] for one in rest["hypervisors"]] == nodes[2:]
        assert (await api.ask("GET", "/os-hypervisors?limit=1&bogus=1", version="2.53")).status_code == 400
        shown = await api.good("GET", "/os-hypervisors?with_servers=true", version="2.75")
        assert [one["servers"] for one in shown["hypervisors"]] == [[], [], []]

    async def test_a_host_that_never_reported_is_a_service_only(self, api: ApiUnderTest) -> None:
        await api.map_host("silent", held=False)
        assert (await api.good("GET", "/os-hypervisors"))["hypervisors"] == []
        (service,) = (await api.good("GET", "/os-services"))["services"]
        assert (service["state"], service["updated_at"]) == ("down", None)

    async def test_they_are_for_admins(self, api: ApiUnderTest) -> None:
        assert (await api.ask("GET", "/os-hypervisors", token="member")).status_code == 403
        assert (await api.ask("GET", "/os-services", token="member")).status_code == 403


class TestServices:
    async def test_keys_and_filters(self, api: ApiUnderTest) -> None:
        node = await api.map_host("h1")
        await api.map_host("h2")
        services = (await api.good("GET", "/os-services?host=h1&binary=nova-compute"))["services"]
        assert services == [
            {
                "id": number_of(node),
                "binary": "nova-compute",
                "host": "h1",
                "zone": "nova",
                "status": "enabled",
                "state": "up",
                "updated_at": "2023-11-14T22:13:20.000000",
                "disabled_reason": None,
            }
        ]
        newest = (await api.good("GET", "/os-services?host=h1", version="2.53"))["services"]
        assert (newest[0]["id"], newest[0]["forced_down"]) == (node, False)
        assert (await api.good("GET", "/os-services?binary=nova-api"))["services"] == []

    async def test_the_old_way_to_change(self, api: ApiUnderTest) -> None:
        await api.map_host("h1")
        body = {"host": "h1", **COMPUTE}
        assert (await api.good("PUT", "/os-services/disable", body))["service"] == {**body, "status": "disabled"}
        reason = {**body, "disabled_reason": "broken fan"}
        answer = await api.good("PUT", "/os-services/disable-log-reason", reason)
        assert answer["service"] == {**reason, "status": "disabled"}
        (service,) = (await api.good("GET", "/os-services"))["services"]
        assert (service["status"], service["disabled_reason"]) == ("disabled", "broken fan")
        (wish,) = api.scheduler.published[-1].hosts
        assert (wish.disabled, wish.disabled_reason) == (True, "broken fan")
        await api.good("PUT", "/os-services/enable", body)
        assert (await api.good("GET", "/os-services"))["services"][0]["disabled_reason"] is None
        forced = await api.good("PUT", "/os-services/force-down", {**body, "forced_down": True}, version="2.11")
        assert forced["service"] == {**body, "forced_down": True}
        assert (await api.good("GET", "/os-services"))["services"][0]["state"] == "down"
        assert (await api.ask("PUT", "/os-services/enable", {**body, "host": "h9"})).status_code == 404
        assert (await api.ask("PUT", "/os-services/enable", {"host": "h1"})).status_code == 400

    async def test_the_new_way_to_change(self, api: ApiUnderTest) -> None:
        node = await api.map_host("h1")

        async def put(version: str = "2.53", **body: object) -> tuple[int, dict[str, object]]:
            response = await api.ask("PUT", f"/os-services/{node}", body, version=version)
            return response.status_code, response.json().get("service", {})

        status, service = await put(status="disabled", disabled_reason="broken fan", forced_down=True)
        assert (status, service["status"], service["state"]) == (200, "disabled", "down")
        assert (service["disabled_reason"], service["forced_down"]) == ("broken fan", True)
        status, service = await put(status="enabled")
        assert (service["status"], service["disabled_reason"], service["forced_down"]) == ("enabled", None, True)
        assert (await put())[0] == 400
        assert (await put(status="enabled", disabled_reason="no"))[0] == 400
        assert (await put(status="sleepy"))[0] == 400
        body = {"status": "enabled"}
        assert (await api.ask("PUT", f"/os-services/{new_uuid()}", body, version="2.53")).status_code == 404
        assert (await api.ask("PUT", "/os-services/1", body, version="2.53")).status_code == 400

    async def test_the_super_conductor_hears_of_each_change(self, api: ApiUnderTest) -> None:
        await api.map_host("h1")
        await api.good("PUT", "/os-services/disable", {"host": "h1", **COMPUTE})
        await asyncio.wait_for(api.scheduler.nudged.wait(), PATIENCE)

    async def test_a_host_without_servers_can_be_forgotten(self, api: ApiUnderTest) -> None:
        node = await api.map_host("h1")
        await api.good("POST", "/os-aggregates", {"aggregate": {"name": "fast"}})
        await api.good("POST", "/os-aggregates/1/action", {"add_host": {"host": "h1"}})
        assert (await api.ask("DELETE", f"/os-services/{node}", version="2.53")).status_code == 204
        assert (await api.good("GET", "/os-aggregates/1"))["aggregate"]["hosts"] == []
        assert (await api.ask("DELETE", f"/os-services/{node}", version="2.53")).status_code == 404
        path = f"/os-services/{number_of(await api.map_host('h2'))}"
        assert (await api.ask("DELETE", path)).status_code == 204
        assert (await api.ask("DELETE", path)).status_code == 404
        assert (await api.ask("DELETE", "/os-services/x")).status_code == 404

    async def test_an_integer_id_stays_when_others_go(self, api: ApiUnderTest) -> None:
        for name in ("h1", "h2", "h3"):
            await api.map_host(name)
        listed = {one["host"]: one["id"] for one in (await api.good("GET", "/os-services"))["services"]}
        for name in ("h1", "h2"):
            assert (await api.ask("DELETE", f"/os-services/{listed[name]}")).status_code == 204
        left = (await api.good("GET", "/os-services"))["services"]
        assert [(one["host"], one["id"]) for one in left] == [("h3", listed["h3"])]
