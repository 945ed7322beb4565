from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.api.services import ApiSettings, QuotaDefaults
from skep.database.api import server_groups
from skep.domain.ids import GroupUuid, InstanceUuid
from skep_lab.compute_api.api import PROJECT, ApiUnderTest, api_under_test

PATH = "/os-server-groups"


async def make(api: ApiUnderTest, version: str | None = None, **body: Any) -> Any:
    return await api.ask("POST", PATH, {"server_group": {"name": "g", **body}}, token="member", version=version)


async def test_policies_by_microversion(api: ApiUnderTest) -> None:
    oldest = (await make(api, policies=["affinity"])).json()["server_group"]
    assert set(oldest) == {"id", "name", "policies", "members", "metadata"}
    assert (await make(api, policies=["soft-affinity"])).status_code == 400
    soft = (await make(api, "2.15", policies=["soft-affinity"])).json()["server_group"]
    assert (soft["policies"], soft["project_id"], soft["user_id"]) == (["soft-affinity"], PROJECT, "member")
    assert (await make(api, "2.64", policies=["affinity"])).status_code == 400
    newest = (await make(api, "2.64", policy="anti-affinity", rules={"max_server_per_host": "3"})).json()[
        "server_group"
    ]
    assert set(newest) == {"id", "name", "policy", "rules", "members", "project_id", "user_id"}
    assert newest["rules"] == {"max_server_per_host": 3}
    wrong = await make(api, "2.64", policy="affinity", rules={"max_server_per_host": 3})
    assert wrong.json()["badRequest"]["message"] == "Only anti-affinity policy supports rules."
    wrong_ones: tuple[dict[str, Any], ...] = (
        {"policies": []},
        {"policies": ["affinity", "anti-affinity"]},
        {"policies": ["x"]},
        {},
    )
    for bad in wrong_ones:
        assert (await make(api, **bad)).status_code == 400


async def test_a_project_sees_its_own(api: ApiUnderTest) -> None:
    group = (await make(api, policies=["affinity"])).json()["server_group"]["id"]
    assert (await api.ask("GET", f"{PATH}/{group}", token="other")).status_code == 404
    assert (await api.ask("DELETE", f"{PATH}/{group}", token="other")).status_code == 404
    assert (await api.ask("DELETE", f"{PATH}/{group}", token="reader")).status_code == 403
    assert (await api.good("GET", f"{PATH}/{group}", token="reader"))["server_group"]["id"] == group
    assert (await api.good("GET", PATH, token="other"))["server_groups"] == []
    assert (await api.good("GET", f"{PATH}?all_projects=1", token="other"))["server_groups"] == []
    assert [one["id"] for one in (await api.good("GET", f"{PATH}?all_projects=1"))["server_groups"]] == [group]
    assert (await api.ask("DELETE", f"{PATH}/{group}", token="member")).status_code == 204
    assert (await api.ask("DELETE", f"{PATH}/{group}", token="member")).status_code == 404


async def test_members_are_shown_and_outlive_the_group(api: ApiUnderTest) -> None:
    group = GroupUuid((await make(api, policies=["affinity"])).json()["server_group"]["id"])
    servers = [InstanceUuid("s1"), InstanceUuid("s2")]
    database = api.services.database
    assert await database.write(lambda c: server_groups.add_members(c, group, servers, most=2))
    assert not await database.write(lambda c: server_groups.add_members(c, group, [InstanceUuid("s3")], most=2))
    assert (await api.good("GET", f"{PATH}/{group}"))["server_group"]["members"] == ["s1", "s2"]
    assert await database.write(lambda c: server_groups.remove_members(c, servers[:1])) == 1
    await api.good("DELETE", f"{PATH}/{group}")
    assert await database.read(lambda c: server_groups.groups_of(c, servers)) == {}


async def test_pages(api: ApiUnderTest) -> None:
    for _ in range(3):
        await make(api, policies=["affinity"])
    everything = (await api.good("GET", PATH, token="member"))["server_groups"]
    page = (await api.good("GET", f"{PATH}?limit=1&offset=1", token="member"))["server_groups"]
    assert page == everything[1:2]
    for nothing in ("limit=0", "limit=0&offset=0"):
        assert (await api.good("GET", f"{PATH}?{nothing}", token="member"))["server_groups"] == everything
    assert (await api.ask("GET", f"{PATH}?offset=-1", token="member")).status_code == 400


async def test_quota(tmp_path: Path) -> None:
    async with api_under_test(tmp_path, settings=ApiSettings(quotas=QuotaDefaults(server_groups=1))) as api:
        assert (await make(api, policies=["affinity"])).status_code == 200
        response = await make(api, policies=["affinity"])
    assert response.status_code == 403
    assert response.json()["forbidden"]["message"] == "Quota exceeded, too many server groups."
