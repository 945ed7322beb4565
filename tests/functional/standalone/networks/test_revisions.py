"""A change or a delete that is about one revision only (Neutron's extension `revision-if-match`)."""

from __future__ import annotations

import pytest

from tests.support.embedded_networks import AskedNetworks


async def test_what_changed_meanwhile_is_not_changed(net: AskedNetworks) -> None:
    made = await net.make("network", name="a")
    one, before = f"networks/{made['id']}", {"If-Match": f"revision_number={made['revision_number']}"}
    change = {"network": {"name": "b"}}
    after = await net.ask("PUT", one, change, headers=before)
    assert after["revision_number"] > made["revision_number"]
    for method, body in (("PUT", change), ("DELETE", None)):
        kind, text = await net.refused(412, method, one, body, headers=before)
        assert kind == "RevisionNumberConstraintFailed"
        assert str(after["revision_number"]) in text
    assert (await net.ask("GET", one))["name"] == "b"
    await net.ask("DELETE", one, headers={"If-Match": f"revision_number={after['revision_number']}"})
    await net.refused(404, "GET", one)


@pytest.mark.parametrize(
    "said", ["", "1", "revision_number", "revision_number=", "revision_number=x", "*", "revision_number=" + "9" * 30]
)
async def test_what_is_no_revision(net: AskedNetworks, said: str) -> None:
    made = await net.make("network", name="a")
    _, text = await net.refused(400, "DELETE", f"networks/{made['id']}", headers={"If-Match": said})
    assert "revision_number=NUMBER" in text
