"""Quota: resource names and what one server of a flavor takes."""

from __future__ import annotations

import msgspec

from skep.domain.flavors import Flavor

COUNTED = ("instances", "cores", "ram")
"""The resources of which each server takes a share; summed per project in the transaction that changes them."""


UNLIMITED = -1
"""As a limit."""


class FixedLimits(dict[str, int]):
    """Limits of a project that another service decides: nothing that is stored here changes them."""


class QuotaCharge(msgspec.Struct, frozen=True, kw_only=True):
    """What one server (or one move) takes from its project's quota. Credit is deleting its row, once."""

    instances: int
    cores: int
    ram: int
    """MiB"""


def larger(one: QuotaCharge, other: QuotaCharge) -> QuotaCharge:
    """Return what suffices for either of two charges."""
    return QuotaCharge(
        instances=max(one.instances, other.instances), cores=max(one.cores, other.cores), ram=max(one.ram, other.ram)
    )


def charge_of(flavor: Flavor) -> QuotaCharge:
    """Return what one server of `flavor` takes."""
    return QuotaCharge(instances=1, cores=flavor.vcpus, ram=flavor.memory_mb)


NOTHING = QuotaCharge(instances=0, cores=0, ram=0)
"""What a soft-deleted server takes."""
