from __future__ import annotations

import pytest

from skep.compute.ledger import Ledger, Replaced
from skep.domain.builds import Accepted, Refused
from skep.domain.resources import Inventory
from tests.support.agents import uuid_of
from tests.support.assigned import assigned

INVENTORY = {
    "VCPU": Inventory(total=2, allocation_ratio=4.0),
    "MEMORY_MB": Inventory(total=1024, reserved=512),
}
ONE = {"VCPU": 1, "MEMORY_MB": 256}


def test_ratios_and_reserves_bound_it() -> None:
    ledger = Ledger(INVENTORY)
    assert ledger.claim(uuid_of(1), 1, assigned({"VCPU": 8, "MEMORY_MB": 512})) == Accepted()
    assert ledger.claim(uuid_of(2), 1, assigned({"VCPU": 1})) == Refused(lacks={"VCPU": 1})


def test_a_refusal_says_all_that_is_missing() -> None:
    ledger = Ledger(INVENTORY)
    wanted = {"VCPU": 10, "MEMORY_MB": 513, "CUSTOM_GOLD": 3}
    assert ledger.claim(uuid_of(1), 1, assigned(wanted)) == Refused(lacks={"VCPU": 2, "MEMORY_MB": 1, "CUSTOM_GOLD": 3})
    assert ledger.usage() == {"VCPU": 0, "MEMORY_MB": 0}


def test_a_repeat_is_counted_once() -> None:
    ledger = Ledger(INVENTORY)
    for _ in range(3):
        assert ledger.claim(uuid_of(1), 1, assigned(ONE)) == Accepted()
    assert ledger.usage() == ONE


def test_an_older_attempt_is_replaced_and_a_newer_counted_beside() -> None:
    ledger = Ledger(INVENTORY)
    ledger.claim(uuid_of(1), 2, assigned(ONE))
    assert ledger.claim(uuid_of(1), 1, assigned(ONE)) == Replaced(2)
    assert ledger.claim(uuid_of(1), 3, assigned(ONE)) == Accepted()
    assert ledger.attempts(uuid_of(1)) == (2, 3)
    assert ledger.usage() == {"VCPU": 2, "MEMORY_MB": 512}


def test_a_release_gives_it_back_once() -> None:
    ledger = Ledger(INVENTORY)
    ledger.claim(uuid_of(1), 1, assigned(ONE))
    for _ in range(2):
        ledger.release(uuid_of(1), 1)
    assert ledger.usage() == {"VCPU": 0, "MEMORY_MB": 0}
    assert not ledger.holds(uuid_of(1), 1)


def test_what_is_there_counts_even_where_it_does_not_fit() -> None:
    ledger = Ledger(INVENTORY)
    ledger.adopt(uuid_of(1), 1, assigned({"VCPU": 100}))
    assert ledger.usage()["VCPU"] == 100
    assert isinstance(ledger.claim(uuid_of(2), 1, assigned({"VCPU": 1})), Refused)
    assert ledger.claim(uuid_of(3), 1, assigned({"MEMORY_MB": 1})) == Accepted()


def test_a_smaller_inventory_keeps_what_is_counted() -> None:
    ledger = Ledger(INVENTORY)
    ledger.claim(uuid_of(1), 1, assigned({"VCPU": 8}))
    ledger.set_inventory({"VCPU": Inventory(total=1)})
    assert ledger.usage() == {"VCPU": 8}
    assert isinstance(ledger.claim(uuid_of(2), 1, assigned({"VCPU": 1})), Refused)


def test_a_negative_amount_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError):
        Ledger(INVENTORY).claim(uuid_of(1), 1, assigned({"VCPU": -1}))


def test_the_last_end_is_known_if_all_servers_have_one() -> None:
    ledger = Ledger(INVENTORY)
    assert ledger.expected_end() is None
    ledger.claim(uuid_of(1), 1, assigned(ONE, end=20))
    ledger.adopt(uuid_of(2), 1, assigned(ONE, end=10))
    assert ledger.expected_end() == 20
    ledger.adopt(uuid_of(3), 1, assigned({}))
    assert ledger.expected_end() is None
    ledger.release(uuid_of(3), 1)
    ledger.release(uuid_of(1), 1)
    assert ledger.expected_end() == 10
    ledger.release(uuid_of(2), 1)
    assert ledger.expected_end() is None


def test_an_attempt_instead_of_another_is_counted_with_it_as_one() -> None:
    ledger = Ledger(INVENTORY)
    ledger.adopt(uuid_of(1), 1, assigned(ONE))
    for _ in range(2):
        ledger.replace(uuid_of(1), 2, 1, assigned(ONE))
        assert (ledger.usage(), ledger.attempts(uuid_of(1))) == (ONE, (1, 2))
    ledger.release(uuid_of(1), 1)
    assert (ledger.usage(), ledger.attempts(uuid_of(1))) == (ONE, (2,)), "what it replaced is gone"
    ledger.replace(uuid_of(1), 3, 2, assigned(ONE))
    ledger.release(uuid_of(1), 3)
    assert (ledger.usage(), ledger.attempts(uuid_of(1))) == (ONE, (2,)), "it came to nothing"
    ledger.release(uuid_of(1), 2)
    assert ledger.usage() == {"VCPU": 0, "MEMORY_MB": 0}
    ledger.replace(uuid_of(1), 4, 3, assigned(ONE))
    assert ledger.usage() == ONE, "there is nothing that it could share with"
