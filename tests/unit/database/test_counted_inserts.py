"""Inserts that tell whether they wrote a row: in both kinds of databases alike."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api import aggregates, flavors, quotas
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId, UserId
from skep.domain.quotas import COUNTED, UNLIMITED, charge_of

PROJECT, USER = ProjectId("p"), UserId("u")
FLAVOR = Flavor(flavorid="1", name="m1.tiny", vcpus=2, memory_mb=512, root_gb=1, is_public=False)


def test_a_charge_is_taken_within_the_limits_and_refused_beyond(api: sa.Connection) -> None:
    limits = {**dict.fromkeys(COUNTED, UNLIMITED), "cores": 4}
    one, two, three = (InstanceUuid(name) for name in ("one", "two", "three"))
    assert quotas.charge(api, PROJECT, USER, {one: charge_of(FLAVOR)}, limits) is None
    assert quotas.charge(api, PROJECT, USER, {two: charge_of(FLAVOR)}, limits) is None
    refused = quotas.charge(api, PROJECT, USER, {three: charge_of(FLAVOR)}, limits)
    assert refused is not None
    assert refused.resources == ("cores",)
    assert quotas.used(api, PROJECT)["cores"] == 4


def test_a_second_time_is_known(api: sa.Connection) -> None:
    flavors.add(api, FLAVOR, 1)
    assert flavors.grant(api, "1", PROJECT)
    assert not flavors.grant(api, "1", PROJECT)
    made = aggregates.add(api, uuid="a", name="a", metadata={}, now=1)
    assert made is not None
    assert aggregates.add_host(api, made.id, "host")
    assert not aggregates.add_host(api, made.id, "host")
