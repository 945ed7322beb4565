from __future__ import annotations

from typing import Any

import pytest

from skep.database.api import flavors
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT, ApiUnderTest


async def make(api: ApiUnderTest, name: str, **more: Any) -> dict[str, Any]:
    body = {"name": name, "ram": 512, "vcpus": 1, "disk": 1, **more}
    created: dict[str, Any] = (await api.good("POST", "/flavors", {"flavor": body}, version="2.75"))["flavor"]
    return created


async def names(api: ApiUnderTest, query: str = "", **more: Any) -> list[str]:
    return [one["name"] for one in (await api.good("GET", f"/flavors{query}", **more))["flavors"]]


async def test_a_flavor_has_all_keys_of_its_microversion(api: ApiUnderTest) -> None:
    await make(api, "tiny", id="1")
    oldest = (await api.good("GET", "/flavors/1"))["flavor"]
    assert set(oldest) == {
        "id",
        "name",
        "ram",
        "disk",
        "vcpus",
        "swap",
        "OS-FLV-EXT-DATA:ephemeral",
        "OS-FLV-DISABLED:disabled",
        "os-flavor-access:is_public",
        "rxtx_factor",
        "links",
    }
    assert oldest["swap"] == ""
    assert set((await api.good("GET", "/flavors/1", version="2.55"))["flavor"]) - set(oldest) == {"description"}
    newest = (await api.good("GET", "/flavors/1", version="2.75"))["flavor"]
    assert set(newest) - set(oldest) == {"description", "extra_specs"}
    assert newest["swap"] == 0
    given_up = {"rxtx_factor", "OS-FLV-DISABLED:disabled"}
    assert set(newest) - set((await api.good("GET", "/flavors/1", version="2.102"))["flavor"]) == given_up


async def test_the_factor_that_nova_gave_up_is_refused_since_2_102(api: ApiUnderTest) -> None:
    body = {"flavor": {"name": "old", "ram": 64, "vcpus": 1, "disk": 1, "rxtx_factor": 1.0}}
    refused = await api.ask("POST", "/flavors", body, version="2.102")
    assert refused.status_code == 400
    assert "rxtx_factor" in refused.text
    await api.good("POST", "/flavors", body, version="2.101")


async def test_an_id_is_made_up_where_none_is_given(api: ApiUnderTest) -> None:
    assert len((await make(api, "one"))["id"]) == 36
    assert (await make(api, "two", id=7))["id"] == "7"


async def test_names_and_ids_are_taken_once(api: ApiUnderTest) -> None:
    await make(api, "tiny", id="1")
    body = {"name": "tiny", "ram": 1, "vcpus": 1, "disk": 0}
    response = await api.ask("POST", "/flavors", {"flavor": body})
    assert response.status_code == 409
    assert response.json()["conflictingRequest"]["message"] == "Flavor with name tiny already exists."
    response = await api.ask("POST", "/flavors", {"flavor": {**body, "name": "other", "id": "1"}})
    assert response.json()["conflictingRequest"]["message"] == "Flavor with ID 1 already exists."


async def test_lists_are_filtered_sorted_and_paged(api: ApiUnderTest) -> None:
    await make(api, "small", id="b", ram=256)
    await make(api, "large", id="a", ram=2048, disk=20)
    await make(api, "middle", id="c", ram=1024, disk=10)
    assert await names(api) == ["large", "small", "middle"]
    assert await names(api, "?sort_key=memory_mb&sort_dir=desc") == ["large", "middle", "small"]
    assert await names(api, "?minRam=1024") == ["large", "middle"]
    assert await names(api, "?minDisk=15") == ["large"]
    assert await names(api, "?marker=a") == ["small", "middle"]
    assert await names(api, "?name=middle", version="2.102") == ["middle"]
    page = await api.good("GET", "/flavors/detail?limit=2&minRam=1")
    assert [one["id"] for one in page["flavors"]] == ["a", "b"]
    (link,) = page["flavors_links"]
    assert link == {"rel": "next", "href": "http://cloud/v2.1/flavors/detail?limit=2&minRam=1&marker=b"}
    assert "flavors_links" not in await api.good("GET", "/flavors?limit=5")


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=x",
        "limit=",
        "marker=none",
        "marker=",
        "minRam=x",
        "minDisk=1.5",
        "sort_key=secret",
        "is_public=perhaps",
    ],
)
async def test_nonsense_in_a_query_is_a_bad_request(api: ApiUnderTest, query: str) -> None:
    assert (await api.ask("GET", f"/flavors?{query}")).status_code == 400


async def test_unknown_keys_are_refused_from_2_75_on(api: ApiUnderTest) -> None:
    await api.good("GET", "/flavors?bogus=1", version="2.74")
    response = await api.ask("GET", "/flavors?bogus=1", version="2.75")
    assert response.status_code == 400
    assert "bogus" in response.text


async def test_private_flavors_are_for_those_who_have_access(api: ApiUnderTest) -> None:
    await make(api, "secret", id="s", **{"os-flavor-access:is_public": False})
    await make(api, "open", id="o")
    assert await names(api, token="member") == ["open"]
    assert (await api.ask("GET", "/flavors/s", token="member")).status_code == 404
    granted = await api.good("POST", "/flavors/s/action", {"addTenantAccess": {"tenant": PROJECT}})
    assert granted == {"flavor_access": [{"flavor_id": "s", "tenant_id": PROJECT}]}
    assert await names(api, token="member") == ["open", "secret"]
    assert await names(api) == ["open"]
    assert await names(api, "?is_public=None") == ["open", "secret"]
    assert await names(api, "?is_public=false") == ["secret"]
    assert await api.good("GET", "/flavors/s/os-flavor-access") == granted
    again = await api.ask("POST", "/flavors/s/action", {"addTenantAccess": {"tenant": PROJECT}})
    assert again.status_code == 409
    revoked = await api.good("POST", "/flavors/s/action", {"removeTenantAccess": {"tenant": PROJECT}})
    assert revoked == {"flavor_access": []}
    absent = await api.ask("POST", "/flavors/s/action", {"removeTenantAccess": {"tenant": PROJECT}})
    assert absent.status_code == 404


async def test_access_to_what_is_deleted_just_then_is_none(api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(api, "secret", id="s", **{"os-flavor-access:is_public": False})
    write = api.services.database.write

    async def late(*said: Any, **more: Any) -> Any:
        await write(lambda connection: flavors.remove(connection, "s"))
        return await write(*said, **more)

    monkeypatch.setattr(api.services.database, "write", late)
    answer = await api.ask("POST", "/flavors/s/action", {"addTenantAccess": {"tenant": PROJECT}})
    assert answer.status_code == 404, answer.text


async def test_access_to_what_is_public_or_by_nobody_is_refused(api: ApiUnderTest) -> None:
    await make(api, "open", id="o")
    grant = {"addTenantAccess": {"tenant": OTHER_PROJECT}}
    assert (await api.ask("POST", "/flavors/o/action", grant, version="2.7")).status_code == 409
    assert (await api.ask("GET", "/flavors/o/os-flavor-access")).status_code == 404
    nobody = await api.ask("POST", "/flavors/o/action", {"addTenantAccess": {"tenant": "nobody"}})
    assert nobody.status_code == 400
    assert (await api.ask("POST", "/flavors/o/action", grant, token="member")).status_code == 403


async def test_extra_specs_come_and_go(api: ApiUnderTest) -> None:
    await make(api, "tiny", id="1")
    specs = {"hw:cpu_policy": "shared", "anything": "goes"}
    assert await api.good("POST", "/flavors/1/os-extra_specs", {"extra_specs": specs}) == {"extra_specs": specs}
    assert await api.good("PUT", "/flavors/1/os-extra_specs/anything", {"anything": "else"}) == {"anything": "else"}
    assert await api.good("GET", "/flavors/1/os-extra_specs/anything", token="reader") == {"anything": "else"}
    numbers = await api.good("POST", "/flavors/1/os-extra_specs", {"extra_specs": {"anything": 2, "more": 1.5}})
    assert numbers == {"extra_specs": {"anything": "2", "more": "1.5"}}
    assert (await api.ask("POST", "/flavors/1/os-extra_specs", {"extra_specs": {"more": True}})).status_code == 400
    await api.good("DELETE", "/flavors/1/os-extra_specs/more")
    await api.good("DELETE", "/flavors/1/os-extra_specs/anything")
    assert (await api.ask("DELETE", "/flavors/1/os-extra_specs/anything")).status_code == 404
    assert await api.good("GET", "/flavors/1/os-extra_specs") == {"extra_specs": {"hw:cpu_policy": "shared"}}
    mismatch = await api.ask("PUT", "/flavors/1/os-extra_specs/a", {"b": "c"})
    assert mismatch.status_code == 400
    shown = await api.good("GET", "/flavors/1", version="2.61")
    assert shown["flavor"]["extra_specs"] == {"hw:cpu_policy": "shared"}


@pytest.mark.parametrize(
    ("specs", "good"),
    [
        ({"hw:cpu_policy": "dedicated"}, True),
        ({"hw:cpu_policy": "sometimes"}, False),
        ({"hw:nonsense": "1"}, False),
        ({"hw:numa_cpus.0": "0-3,^2"}, True),
        ({"resources:VCPU": "2"}, True),
        ({"resources:VCPU": "some"}, False),
        ({"resources2:CUSTOM_GPU": "1"}, True),
        ({"trait:HW_CPU_X86_AVX2": "required"}, True),
        ({"trait:HW_CPU_X86_AVX2": "please"}, False),
        ({"trait:any_of": "CUSTOM_A,HW_CPU_X86_AVX2"}, True),
        ({"trait1:any_of.word": "CUSTOM_A,NO_SUCH_TRAIT"}, False),
        ({"resources:NO_SUCH_CLASS": "1"}, False),
        ({"trait:NO_SUCH_TRAIT": "required"}, False),
        ({"aggregate_instance_extra_specs:ssd": "true"}, True),
        ({"quota:disk_read_iops_sec": "100"}, True),
        ({"my:own": "business"}, True),
    ],
)
async def test_extra_specs_are_judged_since_2_86(api: ApiUnderTest, specs: dict[str, str], good: bool) -> None:
    await make(api, "tiny", id="1")
    body = {"extra_specs": specs}
    assert (await api.ask("POST", "/flavors/1/os-extra_specs", body, version="2.85")).status_code == 200
    assert (await api.ask("POST", "/flavors/1/os-extra_specs", body, version="2.86")).status_code == (
        200 if good else 400
    )


async def test_a_description_is_changed_since_2_55(api: ApiUnderTest) -> None:
    await make(api, "tiny", id="1")
    body = {"flavor": {"description": "small"}}
    assert (await api.ask("PUT", "/flavors/1", body, version="2.54")).status_code == 404
    assert (await api.good("PUT", "/flavors/1", body, version="2.55"))["flavor"]["description"] == "small"
    assert (await api.ask("PUT", "/flavors/2", body, version="2.55")).status_code == 404


async def test_a_deleted_flavor_is_gone(api: ApiUnderTest) -> None:
    await make(api, "tiny", id="1")
    assert (await api.ask("DELETE", "/flavors/1", token="member")).status_code == 403
    assert (await api.ask("DELETE", "/flavors/1")).status_code == 202
    assert (await api.ask("DELETE", "/flavors/1")).status_code == 404
    assert (await api.ask("GET", "/flavors/1")).json()["itemNotFound"]["message"] == "Flavor 1 could not be found."
