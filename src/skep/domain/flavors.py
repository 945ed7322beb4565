"""Flavors: the sizes that servers come in."""

from __future__ import annotations

import msgspec

from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Resources


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """A flavor as it was when a server was asked for; kept with the server for ever."""

    flavorid: str
    """The id in the API, chosen by the operator."""
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    disabled: bool = False
    description: str | None = None
    extra_specs: dict[str, str] = {}

    def resources(self) -> Resources:
        """Return what one server of this flavor takes on a host.

        Local disk is root + ephemeral + swap, swap rounded up to GiB; `resources:CLASS=N` extra specs override an
        amount, and 0 takes the class out (Nova, "Flavors", section Custom resource classes).
        """
        swap_gb = -(-self.swap_mb // 1024)
        amounts = {
            VCPU: self.vcpus,
            MEMORY_MB: self.memory_mb,
            DISK_GB: self.root_gb + self.ephemeral_gb + swap_gb,
        }
        for key, value in self.extra_specs.items():
            prefix, _, resource_class = key.partition(":")
            if prefix == "resources" and value.isdecimal():
                amounts[resource_class] = int(value)
        return {resource_class: amount for resource_class, amount in amounts.items() if amount > 0}

    def required_traits(self) -> tuple[str, ...]:
        """Return the traits that a host must have (`trait:NAME=required`)."""
        return self._traits("required")

    def forbidden_traits(self) -> tuple[str, ...]:
        """Return the traits that a host must not have (`trait:NAME=forbidden`)."""
        return self._traits("forbidden")

    def _traits(self, wanted: str) -> tuple[str, ...]:
        return tuple(
            sorted(
                key.removeprefix("trait:")
                for key, value in self.extra_specs.items()
                if key.startswith("trait:") and value == wanted
            )
        )
