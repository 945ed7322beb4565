"""Host states, claims and selections over HTTP: for admins, and for whoever has a cell's credential."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.admin import CELL1
from tests.support.served_admin import Served, usage

CLAIM = {"instance": "i1", "attempt": 1, "node": "n1"}


def report(node: str, seq: int = 2, **more: Any) -> dict[str, Any]:
    told = msgspec.to_builtins(usage(f"h{node[1:]}", {"VCPU": 3}))
    return {"node": node, "incarnation": 1, "seq": seq, "usage": told, **more}


async def nodes(served: Served, query: str = "", secret: str | None = None) -> list[str]:
    answer = await served.good("GET", f"/host-states{query}", secret=secret)
    return [state["node"] for state in answer["host_states"]]


async def asserted(served: Served, claims: list[dict[str, Any]], secret: str | None = None) -> Any:
    body = {"cell": "cell1", "epoch": await served.backend.epoch(), "claims": claims}
    return await served.good("POST", "/claims/assert", body, secret)


async def test_admins_read_host_states_by_conditions_fields_and_pages(served: Served) -> None:
    whole = (await served.good("GET", "/host-states?host=h2"))["host_states"]
    assert [(state["node"], state["usage"]["inventory"]["VCPU"]["total"]) for state in whole] == [("n2", 8)]
    assert await nodes(served, "?condition=free.VCPU>=8&condition=up=true") == ["n1", "n2"]
    assert await nodes(served, "?condition=free.VCPU>8") == []
    assert await nodes(served, "?cell=cell2") == ["n2"]
    assert await nodes(served, "?node=n1&node=n2&zone=nova") == ["n1", "n2"]
    page = await served.good("GET", "/host-states?limit=1&fields=usage.host, free.VCPU")
    assert page["host_states"] == [{"node": "n1", "usage.host": "h1", "free.VCPU": 8}]
    rest = await served.good("GET", f"/host-states?limit=1&fields=usage.host&marker={page['next_marker']}")
    assert (rest["host_states"], rest["next_marker"]) == ([{"node": "n2", "usage.host": "h2"}], None)
    assert rest["epoch"] == await served.backend.epoch()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("condition=colour=red", "colour"),
        ("condition=free.VCPU=lots", "free.VCPU"),
        ("fields=colour", "colour"),
        ("fields=", "fields"),
        ("fields=usage.inventory.vcpu", "usage.inventory.vcpu"),
    ],
)
async def test_what_is_not_known_is_named(served: Served, query: str, names: str) -> None:
    response = await served.ask("GET", f"/host-states?{query}")
    assert response.status_code == 400
    assert names in response.json()["error"]["message"]


async def test_a_cells_credential_reaches_that_cells_hosts_only(served: Served) -> None:
    secret = await served.secret("cells/cell1")
    assert await nodes(served, secret=secret) == ["n1"]
    assert await nodes(served, f"?cell={CELL1}", secret) == ["n1"]
    assert await nodes(served, "?node=n2", secret) == []
    assert await served.status("GET", "/host-states?cell=cell2", secret=secret) == 404
    answer = await served.good("POST", "/host-states", {"reports": [report("n1"), report("n2")]}, secret)
    assert [one["error"] for one in answer["answers"]] == [None, "node: there is no such node"]
    assert await nodes(served, "?condition=used.VCPU=3") == ["n1"]
    assert await served.status("POST", "/claims/release", {"claims": [{**CLAIM, "node": "n2"}]}, secret) == 404
    epoch = await served.backend.epoch()
    assert await served.status("POST", "/claims/assert", {"cell": "cell2", "epoch": epoch}, secret) == 404
    held = {**CLAIM, "node": "n2", "resources": {"VCPU": 1}}
    body = {"cell": "cell1", "epoch": epoch, "claims": [held]}
    assert await served.status("POST", "/claims/assert", body, secret) == 404


async def test_what_a_credential_may_not_do_at_all_is_forbidden(served: Served) -> None:
    secret = await served.secret("cells/cell1")
    for method, path in (
        *(("GET", "/cells"), ("GET", "/cells/cell1"), ("GET", "/hosts"), ("PATCH", "/hosts/h1"), ("GET", "/audit")),
        *(("POST", "/cells/cell1/credentials"), ("GET", "/cells/cell1/credentials"), ("GET", "/namespaces")),
        *(("POST", "/select-destinations"), ("PUT", "/namespaces/volume/states"), ("PUT", "/namespaces/volume")),
    ):
        assert (path, await served.status(method, path, {}, secret)) == (path, 403)


async def test_claims_are_asserted_and_released(served: Served) -> None:
    secret = await served.secret("cells/cell1")
    answer = await asserted(served, [{**CLAIM, "resources": {"VCPU": 5}}], secret)
    assert answer == {"epoch": await served.backend.epoch(), "refused": []}
    assert await nodes(served, "?condition=claimed.VCPU=5") == ["n1"]
    too_much = {**CLAIM, "instance": "i2", "resources": {"VCPU": 500}}
    assert (await asserted(served, [too_much], secret))["refused"] == [{**CLAIM, "instance": "i2", "group": None}]
    assert await served.good("POST", "/claims/release", {"claims": [CLAIM]}, secret) == {"released": 1}
    assert await served.good("POST", "/claims/release", {"claims": [CLAIM]}) == {"released": 0}
    assert await nodes(served, "?condition=claimed.VCPU=0&cell=cell1") == ["n1"]


@pytest.mark.parametrize(
    "resources",
    [{"VCPU": -1}, {"VCPU": 2**31}, {"VCPU": 2**70}, {}, {f"CUSTOM_{number}": 1 for number in range(65)}],
)
async def test_a_claim_that_would_make_room_or_poison_columns_is_refused(
    served: Served, resources: dict[str, int]
) -> None:
    body = {"cell": "cell1", "epoch": "e", "claims": [{**CLAIM, "resources": resources}]}
    response = await served.ask("POST", "/claims/assert", body)
    assert response.status_code == 400
    assert "resources" in response.json()["error"]["message"]


async def test_nonsense_is_refused_by_host_and_the_others_go_on(served: Served) -> None:
    bad = report("n1")
    bad["usage"]["used"]["VCPU"] = 2**80
    worse = report("n1", 3)
    worse["usage"]["used"]["VCPU"] = -4
    stale = report("n2", 0)
    answer = await served.good("POST", "/host-states", {"reports": [bad, worse, stale, report("n2")]})
    assert [bool(one["error"]) for one in answer["answers"]] == [True, True, False, False]
    assert [one["stale"] for one in answer["answers"]] == [False, False, True, False]
    assert await nodes(served, "?condition=used.VCPU=3") == ["n2"]


async def test_a_report_settles_claims(served: Served) -> None:
    await asserted(served, [{**CLAIM, "resources": {"VCPU": 2}}])
    first = await served.good("POST", "/host-states", {"reports": [report("n1")]})
    assert first["answers"][0]["claims"] == [{**CLAIM, "group": None}]
    settled = report("n1", 3, settled=[{"instance": "i1", "attempt": 1}])
    assert (await served.good("POST", "/host-states", {"reports": [settled]}))["answers"][0]["claims"] == []


async def test_admins_ask_what_would_be_selected(served: Served) -> None:
    body = {"flavor": "m1.tiny", "members": [{"instance": "a"}, {"instance": "b"}], "prefer": ["n2"], "ignore": []}
    answer = await served.good("POST", "/select-destinations", body)
    assert [one["decision"] for one in answer["decisions"]] == ["placed", "placed"]
    assert answer["decisions"][0]["host"] == "h2"
    none = await served.good("POST", "/select-destinations", {"flavor": "1", "ignore": ["n1", "n2"]})
    assert none["decisions"][0]["decision"] == "no_valid_host"
    only = await served.good("POST", "/select-destinations", {"flavor": "1", "exclude_cells": ["cell1"]})
    assert only["decisions"][0]["host"] == "h2"
    assert await nodes(served, "?condition=claimed.VCPU>0") == []
