from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.compute.ledger import Ledger
from skep.domain.builds import Accepted
from skep.domain.resources import Inventory, Resources
from tests.support.agents import uuid_of
from tests.support.assigned import assigned

INVENTORIES = st.fixed_dictionaries(
    {
        name: st.builds(
            Inventory,
            total=st.integers(0, 64),
            reserved=st.integers(0, 8),
            allocation_ratio=st.sampled_from([0.5, 1.0, 4.0]),
        )
        for name in ("VCPU", "MEMORY_MB")
    }
)
AMOUNTS = st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "CUSTOM_GOLD"]), st.integers(0, 40))
STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(1, 3), AMOUNTS), max_size=40)


@given(INVENTORIES, STEPS)
def test_it_never_overcommits_and_counts_what_it_accepted(
    inventory: dict[str, Inventory], steps: list[tuple[bool, int, int, Resources]]
) -> None:
    ledger = Ledger(inventory)
    held: dict[tuple[int, int], Resources] = {}
    for claims, number, attempt, amounts in steps:
        if claims:
            if isinstance(ledger.claim(uuid_of(number), attempt, assigned(amounts)), Accepted):
                held.setdefault((number, attempt), amounts)
        else:
            ledger.release(uuid_of(number), attempt)
            held.pop((number, attempt), None)
        total = {name: sum(one.get(name, 0) for one in held.values()) for name in (*inventory, "CUSTOM_GOLD")}
        assert {name: amount for name, amount in ledger.usage().items() if amount} == {
            name: amount for name, amount in total.items() if amount
        }
        for name, amount in total.items():
            assert amount <= (max(0, inventory[name].capacity) if name in inventory else 0)
