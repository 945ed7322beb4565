"""Whether a memcached is large enough is arithmetic over what it says."""

from __future__ import annotations

import pytest

from skep.domain.errors import Misconfigured
from skep.synchronizer.base import MAX_BODY_BYTES
from skep.synchronizer.memcached.capacity import MIB, check, losses, needed_bytes, shards_for


def _settings(**changes: str) -> dict[str, str]:
    return {"cas_enabled": "yes", "item_size_max": str(MIB), "maxbytes": str(64 * MIB)} | changes


def test_a_server_as_it_is_shipped_serves_ten_thousand_hosts() -> None:
    check(_settings(), 10_000)


@pytest.mark.parametrize("hosts", [1, 3_000, 100_000])
def test_what_is_needed_is_just_enough(hosts: int) -> None:
    check(_settings(maxbytes=str(needed_bytes(hosts))), hosts)
    with pytest.raises(Misconfigured, match=f"{hosts} hosts"):
        check(_settings(maxbytes=str(needed_bytes(hosts) - 1)), hosts)


def test_items_have_to_hold_the_largest_body_and_its_marks() -> None:
    with pytest.raises(Misconfigured, match="-I 1m"):
        check(_settings(item_size_max=str(MAX_BODY_BYTES)), 1)


def test_without_compare_and_swap_there_is_nothing_to_be_done() -> None:
    with pytest.raises(Misconfigured, match="-C"):
        check(_settings(cas_enabled="no"), 1)


def test_a_server_that_tells_nothing_is_refused() -> None:
    with pytest.raises(Misconfigured):
        check({}, 1)


def test_losses_are_counted_together() -> None:
    assert losses({"evictions": "2", "store_no_memory": "1", "cmd_flush": "1", "curr_items": "9"}) == 4
    assert losses({}) == 0


def test_the_index_grows_with_the_cloud() -> None:
    assert shards_for(1) == 8
    assert shards_for(100_000) == 150
    assert shards_for(10**9) == 4096
