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
from skep.domain.ids import InstanceUuid
from skep.domain.quotas import COUNTED, charge_of
from tests.support.rows import CELL, FLAVOR, ONE, PROJECT, USER, context, request, server

FREE = dict.fromkeys(COUNTED, quotas.UNLIMITED)
WHOLE = {"instances": 1, "cores": 1, "ram": 512}
NOTHING = dict.fromkeys(COUNTED, 0)
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
    assert not task_charges.give_back(api, ONE, "b")
    assert not task_charges.settle(api, ONE, "b")
    assert task_charges.give_back(api, ONE, "a")
    assert quotas.used(api, PROJECT) == NOTHING
    assert quotas.used(api, PROJECT, USER) == NOTHING
    assert task_charges.waiting(api) == []
    assert not task_charges.give_back(api, ONE, "a")
    assert quotas.used(api, PROJECT) == NOTHING
    assert quotas.is_charged(api, ONE), "it has a charge, of nothing"
    assert mappings.without_charge(api) == []


def test_it_is_charged_again_within_the_limits(api: sa.Connection) -> None:
    charged(api)
    task_charges.bear(api, ONE, "a", NOW)
    assert task_charges.give_back(api, ONE, "a")
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
    assert not task_charges.settle(api, ONE, "b")
    assert task_charges.settle(api, ONE, "c")
    assert task_charges.waiting(api) == []
    assert quotas.used(api, PROJECT) == WHOLE


def test_what_was_not_given_back_yet_stays(api: sa.Connection) -> None:
    charged(api)
    task_charges.bear(api, ONE, "a", NOW)
    again(api, "b", {**FREE, "instances": 0})
    assert quotas.used(api, PROJECT) == WHOLE
    assert not task_charges.give_back(api, ONE, "a"), "the restore came first"


def test_a_deleted_server_gives_back_what_it_has(api: sa.Connection) -> None:
    for given_back in (False, True):
        with api.begin_nested() as savepoint:
            charged(api)
            task_charges.bear(api, ONE, "a", NOW)
            if given_back:
                assert task_charges.give_back(api, ONE, "a")
            assert quotas.credit(api, [ONE]) == 1
            assert quotas.used(api, PROJECT) == NOTHING
            savepoint.rollback()


def test_who_has_no_charge_gets_one(api: sa.Connection) -> None:
    two = InstanceUuid("two")
    task_charges.charge_again(api, msgspec.structs.replace(server(), uuid=two), "a", NOW, FREE)
    assert quotas.used(api, PROJECT) == WHOLE
    assert context("a").request_id == "a"
