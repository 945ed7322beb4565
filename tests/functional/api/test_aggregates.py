from __future__ import annotations

from typing import Any

from skep_lab.compute_api.api import ApiUnderTest


async def make(api: ApiUnderTest, name: str, zone: str | None = None) -> int:
    body: dict[str, Any] = {"name": name}
    if zone is not None:
        body["availability_zone"] = zone
    identifier: int = (await api.good("POST", "/os-aggregates", {"aggregate": body}))["aggregate"]["id"]
    return identifier


async def act(api: ApiUnderTest, aggregate: int, action: str, **what: Any) -> Any:
    return await api.ask("POST", f"/os-aggregates/{aggregate}/action", {action: what})


async def test_keys_by_microversion(api: ApiUnderTest) -> None:
    body = {"aggregate": {"name": "fast", "availability_zone": "east"}}
    created = (await api.good("POST", "/os-aggregates", body, version="2.40"))["aggregate"]
    assert set(created) == {
        "id",
        "name",
        "availability_zone",
        "created_at",
        "updated_at",
        "deleted",
        "deleted_at",
    }
    shown = (await api.good("GET", f"/os-aggregates/{created['id']}", version="2.41"))["aggregate"]
    assert set(shown) - set(created) == {"uuid", "hosts", "metadata"}
    assert shown["metadata"] == {"availability_zone": "east"}


async def test_which_numbers_are_not_there_and_which_are_none(api: ApiUnderTest) -> None:
    for identifier, status in (
        ("-1", 404),
        ("0", 404),
        ("9" * 30, 404),
        ("-", 400),
        ("1.5", 400),
        ("--1", 400),
        ("x", 400),
    ):
        for method in ("GET", "DELETE"):
            assert (await api.ask(method, f"/os-aggregates/{identifier}")).status_code == status, (method, identifier)


async def test_hosts_come_and_go_and_schedulers_are_told(api: ApiUnderTest) -> None:
    await api.map_host("h1")
    fast = await make(api, "fast")
    assert (await act(api, fast, "add_host", host="h1")).json()["aggregate"]["hosts"] == ["h1"]
    assert api.scheduler.published[-1].aggregates[0].hosts == ("h1",)
    assert (await act(api, fast, "add_host", host="h1")).status_code == 409
    assert (await act(api, fast, "add_host", host="nowhere")).status_code == 404
    assert (await api.ask("DELETE", f"/os-aggregates/{fast}")).status_code == 400
    assert (await act(api, fast, "remove_host", host="h1")).json()["aggregate"]["hosts"] == []
    assert (await act(api, fast, "remove_host", host="h1")).status_code == 404
    assert (await api.ask("DELETE", f"/os-aggregates/{fast}")).status_code == 200
    assert (await api.ask("DELETE", f"/os-aggregates/{fast}")).status_code == 404
    assert api.scheduler.published[-1].aggregates == ()


async def test_a_host_is_in_one_zone_only(api: ApiUnderTest) -> None:
    await api.map_host("h1")
    east, west, plain = await make(api, "e", "east"), await make(api, "w", "west"), await make(api, "p")
    assert (await act(api, east, "add_host", host="h1")).status_code == 200
    response = await act(api, west, "add_host", host="h1")
    assert response.status_code == 409
    assert "already in availability zone(s) ['east']" in response.json()["conflictingRequest"]["message"]
    assert (await act(api, plain, "add_host", host="h1")).status_code == 200
    metadata = {"availability_zone": "west"}
    assert (await act(api, plain, "set_metadata", metadata=metadata)).status_code == 400
    update = {"aggregate": {"availability_zone": "west"}}
    assert (await api.ask("PUT", f"/os-aggregates/{plain}", update)).status_code == 400
    assert (await act(api, plain, "set_metadata", metadata={"availability_zone": "east"})).status_code == 200


async def test_metadata_is_merged_and_null_removes(api: ApiUnderTest) -> None:
    fast = await make(api, "fast")
    await act(api, fast, "set_metadata", metadata={"a": "1", "b": "2"})
    changed = (await act(api, fast, "set_metadata", metadata={"a": None, "c": "3"})).json()["aggregate"]
    assert changed["metadata"] == {"b": "2", "c": "3"}
    assert (await act(api, fast, "set_metadata", metadata={"a": 1})).status_code == 400


async def test_names_are_taken_once_and_numbers_are_numbers(api: ApiUnderTest) -> None:
    one, two = await make(api, "one"), await make(api, "two")
    assert one != two
    taken = {"aggregate": {"name": "one"}}
    assert (await api.ask("POST", "/os-aggregates", taken)).status_code == 409
    assert (await api.ask("PUT", f"/os-aggregates/{two}", taken)).status_code == 409
    renamed = await api.good("PUT", f"/os-aggregates/{two}", {"aggregate": {"name": "three"}})
    assert renamed["aggregate"]["name"] == "three"
    assert (await api.ask("PUT", f"/os-aggregates/{two}", {"aggregate": {}})).status_code == 400
    assert (await api.ask("GET", "/os-aggregates/x")).status_code == 400
    assert (await api.ask("GET", f"/os-aggregates/{'9' * 40}")).status_code == 404
    assert (await api.ask("GET", "/os-aggregates", token="member")).status_code == 403


async def test_zones_follow_aggregates(api: ApiUnderTest) -> None:
    await api.map_host("h1")
    await api.map_host("h2", up=False)
    await api.map_host("h3", held=False)
    east = await make(api, "e", "east")
    await act(api, east, "add_host", host="h2")
    zones = (await api.good("GET", "/os-availability-zone", token="reader"))["availabilityZoneInfo"]
    assert zones == [
        {"zoneName": "east", "zoneState": {"available": True}, "hosts": None},
        {"zoneName": "nova", "zoneState": {"available": True}, "hosts": None},
    ]
    assert (await api.ask("GET", "/os-availability-zone/detail", token="reader")).status_code == 403
    detail = (await api.good("GET", "/os-availability-zone/detail"))["availabilityZoneInfo"]
    hosts = {zone["zoneName"]: zone["hosts"] for zone in detail}
    assert hosts["east"]["h2"]["nova-compute"] == {
        "active": True,
        "available": False,
        "updated_at": "2023-11-14T22:13:20.000000",
    }
    assert hosts["nova"]["h3"]["nova-compute"]["updated_at"] is None
    body = {"host": "h2", "binary": "nova-compute"}
    await api.good("PUT", "/os-services/disable", body)
    zones = (await api.good("GET", "/os-availability-zone"))["availabilityZoneInfo"]
    assert [(zone["zoneName"], zone["zoneState"]["available"]) for zone in zones] == [("nova", True), ("east", False)]
