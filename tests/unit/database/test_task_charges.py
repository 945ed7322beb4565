"""Charges that bear a task: given back once, charged again within the limits, settled by their own task alone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.api import build_requests, quotas, task_charges
from skep.database.api import instance_mappings as mappings
from skep.database.api.tables import instance_mappings
from skep.domain.errors import QuotaExceeded
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid
from skep.domain.quotas import COUNTED, UNLIMITED, charge_of
from skep.domain.quotas import NOTHING as NONE
from tests.support.rows import CELL, FLAVOR, ONE, PROJECT, USER, context, request, server

FREE = dict.fromkeys(COUNTED, UNLIMITED)
WHOLE = {"instances": 1, "cores": 1, "ram": 512}
NOTHING = dict.fromkeys(COUNTED, 0)
OWED = charge_of(FLAVOR)
BIG = msgspec.structs.replace(FLAVOR, flavorid="2", vcpus=4, memory_mb=256)
NOW = 100


def charged(api: sa.Connection) -> None:
    """Make server `ONE` in a cell, charged to its project."""
    build_requests.store(api, request([ONE]))
    assert quotas.charge(api, PROJECT, USER, {ONE: charge_of(FLAVOR)}, FREE) is None
    api.execute(instance_mappings.update().values(cell=CELL))


def again(api: sa.Connection, task_id: str, limits: Mapping[str, int] = FREE, **more: Mapping[str, int]) -> None:
    task_charges.charge_again(api, server(), task_id, NOW, limits, **more)


def test_a_charge_is_given_back_once_and_by_its_own_task(api: sa.Connection) -> None:
    charged(api)
    assert task_charges.waiting(api) == []
    task_charges.bear(api, ONE, "a", NOW)
    [waits] = task_charges.waiting(api)
    assert (waits.instance, waits.cell, waits.task_id, waits.since) == (ONE, CELL, "a", NOW)
    assert not task_charges.settle(api, ONE, "b", NONE)
    assert not task_charges.settle(api, ONE, "b", OWED)
    assert task_charges.settle(api, ONE, "a", NONE)
    assert quotas.used(api, PROJECT) == NOTHING
    assert quotas.used(api, PROJECT, USER) == NOTHING
    assert task_charges.waiting(api) == []
    assert not task_charges.settle(api, ONE, "a", NONE)
    assert quotas.used(api, PROJECT) == NOTHING
    assert quotas.is_charged(api, ONE), "it has a charge, of nothing"
    assert mappings.without_charge(api) == []


def test_it_is_charged_again_within_the_limits(api: sa.Connection) -> None:
    charged(api)
    task_charges.bear(api, ONE, "a", NOW)
    assert task_charges.settle(api, ONE, "a", NONE)
    for tight in ({**FREE, "instances": 0}, {**FREE, "ram": 511}):
        for limits, of_user in ((tight, FREE), (FREE, tight)):
            refused = api.begin_nested()
            with pytest.raises(QuotaExceeded, match="Quota exceeded for"):
                again(api, "b", limits, user_limits=of_user)
            refused.rollback()
            assert quotas.used(api, PROJECT) == NOTHING
            assert task_charges.waiting(api) == []
    again(api, "b", {**FREE, "instances": 1, "ram": 512})
    assert quotas.used(api, PROJECT) == WHOLE
    assert [one.task_id for one in task_charges.waiting(api)] == ["b"]
    again(api, "c", {**FREE, "instances": 1})
    assert quotas.used(api, PROJECT) == WHOLE, "it is charged once"
    assert not task_charges.settle(api, ONE, "b", OWED)
    assert task_charges.settle(api, ONE, "c", OWED)
    assert task_charges.waiting(api) == []
    assert quotas.used(api, PROJECT) == WHOLE


def test_what_was_not_given_back_yet_stays(api: sa.Connection) -> None:
    charged(api)
    task_charges.bear(api, ONE, "a", NOW)
    again(api, "b", {**FREE, "instances": 0})
    assert quotas.used(api, PROJECT) == WHOLE
    assert not task_charges.settle(api, ONE, "a", NONE), "the restore came first"


def test_a_deleted_server_gives_back_what_it_has(api: sa.Connection) -> None:
    for given_back in (False, True):
        with api.begin_nested() as savepoint:
            charged(api)
            task_charges.bear(api, ONE, "a", NOW)
            if given_back:
                assert task_charges.settle(api, ONE, "a", NONE)
            assert quotas.credit(api, [ONE]) == 1
            assert quotas.used(api, PROJECT) == NOTHING
            savepoint.rollback()


def test_who_has_no_charge_gets_one(api: sa.Connection) -> None:
    two = InstanceUuid("two")
    task_charges.charge_again(api, msgspec.structs.replace(server(), uuid=two), "a", NOW, FREE)
    assert quotas.used(api, PROJECT) == WHOLE
    assert context("a").request_id == "a"


def larger(api: sa.Connection, task_id: str, limits: Mapping[str, int] = FREE, **more: Mapping[str, int]) -> None:
    task_charges.charge_larger(api, server(), BIG, task_id, NOW, limits, **more)


def test_a_resize_is_charged_for_what_suffices_for_both_sizes(api: sa.Connection) -> None:
    charged(api)
    both = {"instances": 1, "cores": 4, "ram": 512}
    tight = {**FREE, "cores": 3}
    for limits, of_user in ((tight, FREE), (FREE, tight)):
        refused = api.begin_nested()
        with pytest.raises(QuotaExceeded, match="Quota exceeded for cores: Requested 3, but already used 1 of 3 cores"):
            larger(api, "a", limits, user_limits=of_user)
        refused.rollback()
        assert quotas.used(api, PROJECT) == WHOLE
        assert task_charges.waiting(api) == []
    larger(api, "a", {**FREE, "cores": 4, "ram": 0, "instances": 0})
    assert quotas.used(api, PROJECT) == quotas.used(api, PROJECT, USER) == both
    larger(api, "b", {**FREE, "cores": 4})
    assert quotas.used(api, PROJECT) == both, "it is charged once"
    assert not task_charges.settle(api, ONE, "a", OWED)
    assert quotas.used(api, PROJECT) == both


@pytest.mark.parametrize("after", [FLAVOR, BIG])
def test_a_resize_that_is_over_is_charged_for_what_the_server_is(api: sa.Connection, after: Flavor) -> None:
    charged(api)
    larger(api, "a")
    assert task_charges.settle(api, ONE, "a", charge_of(after))
    owed = msgspec.structs.asdict(charge_of(after))
    assert quotas.used(api, PROJECT) == quotas.used(api, PROJECT, USER) == owed
    assert not task_charges.settle(api, ONE, "a", NONE), "once"
    assert quotas.used(api, PROJECT) == owed
    assert quotas.charged(api) == quotas.sums(api)


def test_a_charge_is_corrected_while_its_own_task_is_not_over(api: sa.Connection) -> None:
    charged(api)
    larger(api, "a")
    [waits] = task_charges.waiting(api)
    assert msgspec.structs.asdict(waits.charged) == {"instances": 1, "cores": 4, "ram": 512}
    task_charges.correct(api, ONE, "b", OWED)
    assert task_charges.waiting(api) == [waits]
    task_charges.correct(api, ONE, "a", OWED)
    assert task_charges.waiting(api) == [msgspec.structs.replace(waits, charged=OWED)]
    assert quotas.used(api, PROJECT) == WHOLE
    assert quotas.charged(api) == quotas.sums(api)
    assert task_charges.settle(api, ONE, "a", OWED)
    task_charges.correct(api, ONE, "a", charge_of(BIG))
    assert quotas.used(api, PROJECT) == WHOLE, "it was over"


def test_a_task_that_was_refused_is_given_up_at_once(api: sa.Connection) -> None:
    charged(api)
    larger(api, "a")
    task_charges.hurry(api, ONE, "b")
    assert [one.since for one in task_charges.waiting(api)] == [NOW]
    task_charges.hurry(api, ONE, "a")
    assert [one.since for one in task_charges.waiting(api)] == [0]


def test_a_server_that_was_deleted_meanwhile_is_not_charged(api: sa.Connection) -> None:
    charged(api)
    larger(api, "a")
    assert quotas.credit(api, [ONE]) == 1
    assert quotas.used(api, PROJECT) == NOTHING
    larger(api, "b")
    assert quotas.used(api, PROJECT) == NOTHING
