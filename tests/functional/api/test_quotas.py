from __future__ import annotations

import asyncio

import sqlalchemy as sa

from skep.database.api import quotas
from skep.database.api.quotas import Exceeded
from skep.domain.ids import InstanceUuid, ProjectId, UserId
from skep.domain.quotas import QuotaCharge
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT, ApiUnderTest

SETS = f"/os-quota-sets/{PROJECT}"
ONE = QuotaCharge(instances=1, cores=2, ram=100)


async def charge(api: ApiUnderTest, *servers: str, user: str = "member") -> Exceeded | None:
    defaults = api.services.settings.quotas.limits()
    charges = {InstanceUuid(server): ONE for server in servers}

    def unit(connection: sa.Connection) -> Exceeded | None:
        limits = quotas.limits(connection, ProjectId(PROJECT), defaults=defaults)
        return quotas.charge(connection, ProjectId(PROJECT), UserId(user), charges, limits)

    return await api.services.database.write(unit)


async def test_keys_by_microversion(api: ApiUnderTest) -> None:
    always = {
        "id",
        "instances",
        "cores",
        "ram",
        "metadata_items",
        "key_pairs",
        "server_groups",
        "server_group_members",
    }
    injected = {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}
    network = {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}
    for version, keys in (("2.1", always | injected | network), ("2.36", always | injected), ("2.57", always)):
        assert set((await api.good("GET", SETS, version=version))["quota_set"]) == keys
        assert set((await api.good("GET", f"{SETS}/defaults", version=version))["quota_set"]) == keys
        detail = (await api.good("GET", f"{SETS}/detail", version=version))["quota_set"]
        assert set(detail) == keys
        assert detail["cores"] == {"limit": 20, "in_use": 0, "reserved": 0}
    classes = (await api.good("GET", "/os-quota-class-sets/default", version="2.49"))["quota_class_set"]
    assert "server_groups" not in classes
    assert "floating_ips" in classes


async def test_limits_are_set_and_reset(api: ApiUnderTest) -> None:
    updated = await api.good("PUT", SETS, {"quota_set": {"cores": "5", "ram": -1}})
    assert (updated["quota_set"]["cores"], updated["quota_set"]["ram"]) == (5, -1)
    assert "id" not in updated["quota_set"]
    assert (await api.good("GET", SETS, token="reader"))["quota_set"]["cores"] == 5
    assert (await api.ask("DELETE", SETS)).status_code == 202
    assert (await api.good("GET", SETS))["quota_set"]["cores"] == 20


async def test_who_may(api: ApiUnderTest) -> None:
    assert (await api.ask("GET", f"/os-quota-sets/{OTHER_PROJECT}", token="member")).status_code == 403
    assert (await api.ask("PUT", SETS, {"quota_set": {"cores": 5}}, token="member")).status_code == 403
    assert (await api.ask("GET", "/os-quota-sets/nobody")).status_code == 400
    assert (await api.ask("PUT", "/os-quota-sets/nobody", {"quota_set": {"cores": 5}})).status_code == 400


async def test_wrong_limits_are_named(api: ApiUnderTest) -> None:
    for body in ({"cores": -2}, {"cores": "many"}, {"bogus": 1}, {"cores": 2**40}, {"cores": None}):
        response = await api.ask("PUT", SETS, {"quota_set": body})
        assert response.status_code == 400
        assert next(iter(body)) in response.text


async def test_a_limit_is_not_below_what_is_used_unless_forced(api: ApiUnderTest) -> None:
    assert await charge(api, "a", "b") is None
    response = await api.ask("PUT", SETS, {"quota_set": {"cores": 3}})
    assert response.status_code == 400
    forced = await api.good("PUT", SETS, {"quota_set": {"cores": 3, "force": True}})
    assert forced["quota_set"]["cores"] == 3
    detail = (await api.good("GET", f"{SETS}/detail"))["quota_set"]
    assert detail["cores"] == {"limit": 3, "in_use": 4, "reserved": 0}


async def test_a_user_has_limits_within_the_projects(api: ApiUnderTest) -> None:
    await api.good("PUT", f"{SETS}?user_id=member", {"quota_set": {"cores": 4}})
    assert (await api.good("GET", f"{SETS}?user_id=member"))["quota_set"]["cores"] == 4
    assert (await api.good("GET", f"{SETS}?user_id=reader"))["quota_set"]["cores"] == 20
    assert (await api.ask("PUT", f"{SETS}?user_id=member", {"quota_set": {"cores": 21}})).status_code == 400
    await api.good("DELETE", f"{SETS}?user_id=member")
    assert (await api.good("GET", f"{SETS}?user_id=member"))["quota_set"]["cores"] == 20


async def test_the_default_class_stands_in_for_the_defaults(api: ApiUnderTest) -> None:
    changed = await api.good("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"cores": 7}})
    assert changed["quota_class_set"]["cores"] == 7
    assert (await api.good("GET", SETS))["quota_set"]["cores"] == 7
    assert (await api.good("GET", f"{SETS}/defaults"))["quota_set"]["cores"] == 7
    assert (await api.good("GET", "/limits", token="member"))["limits"]["absolute"]["maxTotalCores"] == 7


async def test_of_two_at_the_last_unit_one_passes(api: ApiUnderTest) -> None:
    await api.good("PUT", SETS, {"quota_set": {"instances": 3}})
    assert await charge(api, "a", "b") is None
    answers = await asyncio.gather(charge(api, "c"), charge(api, "d"))
    assert [answer is None for answer in answers].count(True) == 1
    (refused,) = [answer for answer in answers if answer is not None]
    assert refused.message() == "Quota exceeded for instances: Requested 1, but already used 3 of 3 instances"


async def test_credit_is_given_once(api: ApiUnderTest) -> None:
    await charge(api, "a", "b")
    servers = [InstanceUuid(name) for name in ("a", "b", "never")]
    assert await api.services.database.write(lambda c: quotas.credit(c, servers)) == 2
    assert await api.services.database.write(lambda c: quotas.credit(c, servers)) == 0
    used = await api.services.database.read(lambda c: quotas.used(c, ProjectId(PROJECT)))
    assert used == {"instances": 0, "cores": 0, "ram": 0}


async def test_limits_show_use(api: ApiUnderTest) -> None:
    await charge(api, "a")
    oldest = (await api.good("GET", "/limits", token="member"))["limits"]
    assert oldest["rate"] == []
    assert (oldest["absolute"]["totalCoresUsed"], oldest["absolute"]["maxPersonality"]) == (2, 5)
    newest = (await api.good("GET", "/limits", token="member", version="2.57"))["limits"]["absolute"]
    assert "maxPersonality" not in newest
    assert "maxTotalFloatingIps" not in newest
    assert (await api.good("GET", f"/limits?tenant_id={PROJECT}"))["limits"]["absolute"]["totalInstancesUsed"] == 1
    assert (await api.ask("GET", f"/limits?tenant_id={OTHER_PROJECT}", token="member")).status_code == 403


async def test_defaults_do_not_tell_which_projects_there_are(api: ApiUnderTest) -> None:
    answers = []
    for project in (OTHER_PROJECT, "f" * 32):
        response = await api.ask("GET", f"/os-quota-sets/{project}/defaults", token="member")
        answers.append((response.status_code, response.json()["quota_set"] | {"id": ""}))
    assert answers[0] == answers[1]
    assert answers[0][0] == 200
    missing = await api.ask("GET", f"/os-quota-sets/{'f' * 32}/defaults", token="admin")
    assert missing.status_code == 400, "an admin learns of a mistyped project"
