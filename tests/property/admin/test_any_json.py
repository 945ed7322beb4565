"""Whatever is sent to the schedulers' calls, namespaces and credentials of the admin API, the answer is never a 5xx."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.admin import CELL1, admin_under_test
from tests.support.samples import examples
from tests.support.served_admin import Served, served_admin, usage

TEXT = st.text(max_size=12)
NUMBERS = st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**63, 2**64, -(2**70), 1.5, 1e300])
SCALARS = st.none() | st.booleans() | st.integers() | NUMBERS | TEXT | st.sampled_from(["n1", "h1", CELL1, "a\0b"])
WORDS = st.sampled_from(
    [
        *("node", "instance", "attempt", "group", "usage", "inventory", "used", "VCPU", "total", "traits", "fields"),
        *("type", "minimum", "maximum", "join", "names", "field", "key", "incarnation", "seq", "state", "free_gb"),
    ]
)
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | TEXT, inner, max_size=4),
    max_leaves=10,
)
SCHEMA: dict[str, Any] = {
    "fields": {
        "free_gb": {"type": "integer", "minimum": 0, "maximum": 10, "required": False},
        "volumes": {"type": "strings", "max_items": 3, "max_length": 5},
    },
    "join": {"names": "host", "field": "volumes"},
    "max_states": 100,
}
CLAIM = {"instance": "i", "attempt": 1, "node": "n1", "group": "g"}

GOOD: dict[tuple[str, str], Any] = {
    ("POST", "/host-states"): {
        "reports": [
            {
                "node": "n1",
                "incarnation": 2,
                "seq": 1,
                "usage": msgspec.to_builtins(usage("h1")) | {"traits": ["A"], "cpu_info": {"a": [1]}},
                "settled": [{"instance": "i", "attempt": 1}],
            }
        ]
    },
    ("POST", "/claims/assert"): {
        "cell": "cell1",
        "epoch": "e",
        "claims": [{**CLAIM, "resources": {"VCPU": 1}, "role": "build"}],
        "slots": [{**CLAIM, "policy": "affinity", "max_server_per_host": 1}],
    },
    ("POST", "/claims/release"): {"claims": [CLAIM], "slots_only": False},
    ("POST", "/select-destinations"): {
        "flavor": "1",
        "members": [{"instance": "i", "attempt": 0}],
        "min_count": 1,
        "cell": "cell1",
        "exclude_cells": ["cell2"],
        "prefer": ["n1"],
        "alternates": 1,
        "scheduler_hints": {"same_host_as_volume": "v"},
    },
    ("PUT", "/namespaces/{}"): SCHEMA,
    ("PUT", "/namespaces/{}/states"): {
        "states": [{"key": "k", "incarnation": 1, "seq": 1, "state": {"free_gb": 1, "volumes": ["h1"]}}]
    },
    ("POST", "/cells/{}/credentials"): {"description": "d", "expires_in": 5},
    ("POST", "/namespaces/{}/credentials"): {"description": "d"},
    ("GET", "/host-states"): None,
    ("GET", "/namespaces/{}/states"): None,
    ("GET", "/namespaces/{}/states/{}"): None,
    ("DELETE", "/namespaces/{}/states/{}"): None,
    ("DELETE", "/cells/{}/credentials/{}"): None,
}
SEGMENT = st.sampled_from(["volume", "cell1", "k", "x" * 300, "a\0b", "\N{SNOWMAN}", "compute", ".."])
QUERY = st.dictionaries(
    st.sampled_from(["node", "host", "cell", "zone", "aggregate", "fields", "limit", "marker", "condition", "key"]),
    TEXT | st.sampled_from(["1", "-1", "9" * 30, "cell1", "up=true", "free.VCPU>=1", "volume.free_gb<3", "usage.used"]),
    max_size=3,
)


@st.composite
def nearly_good(draw: st.DrawFn, good: Any) -> Any:
    """Replace one place of a right body by anything."""
    if isinstance(good, dict) and good and draw(st.integers(0, 9)) > 0:
        key = draw(st.sampled_from(sorted(good)))
        return {**good, key: draw(nearly_good(good[key]))}
    if isinstance(good, list) and good and draw(st.booleans()):
        return [draw(nearly_good(good[0])), *good[1:]]
    return draw(ANY_JSON | st.just(good))


async def send(served: Served, data: st.DataObject) -> None:
    method, path = data.draw(st.sampled_from(sorted(GOOD)))
    good = GOOD[method, path]
    filled = path.format(*(quote(data.draw(SEGMENT), safe="") for _ in range(path.count("{}"))))
    body = None if good is None else data.draw(nearly_good(good) | ANY_JSON)
    query = data.draw(QUERY) if method == "GET" else {}
    response = await served.admin.client.request(
        method, f"/admin/v1{filled}", headers={"X-Auth-Token": "admin"}, json=body, params=query
    )
    assert response.status_code < 500, (method, filled, body, query, response.text)


@given(data=st.data())
@settings(max_examples=examples(4))
async def test_any_json_is_answered(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with admin_under_test(Path(directory)) as admin, served_admin(admin) as served:
            assert (await served.ask("PUT", "/namespaces/volume", SCHEMA)).status_code == 200
            for _ in range(50):
                await send(served, data)
            states = (await served.good("GET", "/host-states"))["host_states"]
            assert {state["node"] for state in states} == {"n1", "n2"}
