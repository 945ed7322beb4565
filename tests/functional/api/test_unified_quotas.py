"""With Keystone's unified limits as quotas: what is enforced, what quota sets show, and what is not changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from skep.api.unified_quotas import UnifiedQuotas
from skep.domain.errors import Unavailable
from skep_lab.compute_api.api import PROJECT, ApiUnderTest, api_under_test

SET = f"/os-quota-sets/{PROJECT}"
GROUP = {"server_group": {"name": "g", "policy": "affinity"}}


class KnownLimits:
    """Limits as Keystone would tell them."""

    def __init__(self) -> None:
        self.all: dict[str, int] = {"servers": 5, "class:VCPU": 20, "server_groups": 1, "server_key_pairs": -1}
        self.own: dict[str, dict[str, int]] = {PROJECT: {"class:VCPU": 2}}
        self.silent = False

    async def registered(self) -> Mapping[str, int]:
        if self.silent:
            raise Unavailable("the identity service does not answer")
        return self.all

    async def of_project(self, project: str) -> Mapping[str, int]:
        return self.own.get(project, {})


@pytest.fixture
def known() -> KnownLimits:
    return KnownLimits()


@pytest.fixture
async def api(tmp_path: Path, known: KnownLimits) -> AsyncIterator[ApiUnderTest]:
    quotas = UnifiedQuotas(known, "require", ("servers", "class:MEMORY_MB"))
    async with api_under_test(tmp_path, unified_quotas=quotas) as opened:
        yield opened


async def shown(api: ApiUnderTest, path: str = SET, key: str = "quota_set") -> dict[str, Any]:
    found: dict[str, Any] = (await api.good("GET", path))[key]
    return found


async def test_quota_sets_show_what_keystone_says(api: ApiUnderTest) -> None:
    own = await shown(api)
    assert (own["instances"], own["cores"], own["server_groups"], own["key_pairs"]) == (5, 2, 1, -1)
    assert own["ram"] == 0, "listed as required, and not registered"
    assert own["metadata_items"] == -1, "neither registered nor listed"
    assert (await shown(api, f"{SET}/defaults"))["cores"] == 20
    assert (await shown(api, f"{SET}/detail"))["cores"] == {"limit": 2, "in_use": 0, "reserved": 0}
    assert (await shown(api, "/os-quota-class-sets/default", "quota_class_set"))["cores"] == 20
    absolute = (await api.good("GET", "/limits", token="member"))["limits"]["absolute"]
    assert (absolute["maxTotalCores"], absolute["maxTotalInstances"]) == (2, 5)


async def test_they_change_nothing(api: ApiUnderTest) -> None:
    assert (await api.ask("PUT", SET, {"quota_set": {"cores": 100, "force": True}})).json()["quota_set"]["cores"] == 2
    changed = await api.ask("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"cores": 100}})
    assert changed.json()["quota_class_set"]["cores"] == 20
    assert (await api.ask("DELETE", SET)).status_code == 202
    assert (await shown(api))["cores"] == 2


async def test_limits_are_enforced_and_followed(api: ApiUnderTest, known: KnownLimits) -> None:
    statuses = [
        (await api.ask("POST", "/os-server-groups", GROUP, token="member", version="2.64")).status_code
        for _ in range(2)
    ]
    assert statuses == [200, 403]
    known.all["server_groups"] = 2
    assert (await api.ask("POST", "/os-server-groups", GROUP, token="member", version="2.64")).status_code == 200


async def test_silence_of_keystone_is_a_503_with_when_to_retry(api: ApiUnderTest, known: KnownLimits) -> None:
    known.silent = True
    for method, path, body in (("GET", SET, None), ("POST", "/os-server-groups", GROUP), ("GET", "/limits", None)):
        refused = await api.ask(method, path, body, version="2.64")
        assert refused.status_code == 503, path
        assert refused.headers["Retry-After"] == "1"
    assert (await api.ask("GET", "/flavors")).status_code == 200


async def test_what_is_ignored_is_unlimited_where_it_is_not_registered() -> None:
    names = ("instances", "cores", "ram", "key_pairs")
    found = await UnifiedQuotas(KnownLimits(), "ignore", ("class:MEMORY_MB",)).of(None, names)
    assert found["ram"] == -1
    assert (await UnifiedQuotas(KnownLimits(), "ignore", ()).of(None, names))["ram"] == 0
