"""Whether a server has room for a cloud, and whether it has lost anything: arithmetic over its statistics."""

from __future__ import annotations

from collections.abc import Mapping

from skep.domain.errors import Misconfigured
from skep.synchronizer.base import MAX_BODY_BYTES, MAX_NAME_LENGTH

MIB = 1024 * 1024

BYTES_PER_HOST = 3072
"""What a host takes: its state with some claims (1.2 KiB), what the operator wants (0.3 KiB), headers and names
(0.2 KiB), its share of groups, index and logs (0.3 KiB); and half as much again, since memcached keeps items in classes
of sizes."""

BYTES_ALWAYS = 24 * MIB
"""Logs of a few writers, a page for each class of sizes, hash table and connections."""

MARKS_BYTES = 4 * MAX_NAME_LENGTH + 1024
"""What an item needs beside the body of its record: names, our marks, the server's header."""

KEYS_PER_SHARD = 2000
"""Keys that a part of the index has when the cloud has grown to what was expected; it can hold 30 times as many."""

_LOSSES = ("evictions", "slab_reassign_evictions_nomem", "slab_reassign_busy_deletes", "store_no_memory", "cmd_flush")


def shards_for(expected_hosts: int) -> int:
    """Return how many parts the index has: hosts have about three records each, of all namespaces."""
    return min(4096, max(8, 3 * expected_hosts // KEYS_PER_SHARD))


def needed_bytes(expected_hosts: int) -> int:
    """Return how much memory the records of such a cloud may take."""
    return BYTES_ALWAYS + expected_hosts * BYTES_PER_HOST


def losses(statistics: Mapping[str, str]) -> int:
    """Return a count that grows whenever the server may have lost an item that was not to vanish."""
    return sum(int(statistics.get(name, "0")) for name in _LOSSES)


def check(settings: Mapping[str, str], expected_hosts: int) -> None:
    """Look at what `stats settings` says.

    Raises Misconfigured, with the numbers, when the server can never hold the records of `expected_hosts` hosts.
    """
    if settings.get("cas_enabled", "yes") != "yes":
        raise Misconfigured("synchronizer: memcached runs without compare-and-swap; start it without -C")
    item = int(settings.get("item_size_max", "0"))
    if item < MAX_BODY_BYTES + MARKS_BYTES:
        raise Misconfigured(
            f"synchronizer: memcached stores items up to {item} bytes; {MAX_BODY_BYTES + MARKS_BYTES} are needed: -I 1m"
        )
    limit, needed = int(settings.get("maxbytes", "0")), needed_bytes(expected_hosts)
    if limit < needed:
        megabytes = -(-needed // MIB)
        raise Misconfigured(
            f"synchronizer: memcached has a limit of {limit // MIB} MiB; {expected_hosts} hosts (expected_hosts) at "
            f"{BYTES_PER_HOST} bytes and {BYTES_ALWAYS // MIB} MiB in addition need {megabytes} MiB: -m {megabytes}"
        )
