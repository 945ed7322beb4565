"""PCI devices: what flavors call them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section


class PciAlias(Section, frozen=True, kw_only=True):
    """A name by which flavors ask for devices (`pci_passthrough:alias`); one that stands twice means either kind."""

    name: Annotated[str, Meta(pattern="^[^:,\\s]{1,255}$", description="The name, without `:`, `,` and spaces")]
    vendor_id: Annotated[str, Meta(pattern="^([0-9a-fA-F]{4})?$", description="PCI vendor; empty: any")] = ""
    product_id: Annotated[str, Meta(pattern="^([0-9a-fA-F]{4})?$", description="PCI product; empty: any")] = ""
    device_type: Annotated[
        Literal["", "type-PCI", "type-PF", "type-VF"], Meta(description="Kind of device; empty: any")
    ] = "type-PCI"
    resource_class: Annotated[
        str, Meta(pattern="^([A-Z0-9_]+)?$", description="Resource class; empty: named after vendor and product")
    ] = ""
    traits: Annotated[tuple[str, ...], Meta(description="Traits that the devices must have")] = ()
    numa_policy: Annotated[
        Literal["legacy", "preferred", "required", "socket"],
        Meta(description="How near the devices must be to the guest's NUMA cells, if the flavor does not say"),
    ] = "legacy"

    def __post_init__(self) -> None:
        """Refuses an alias that would mean every device."""
        if not self.resource_class and not (self.vendor_id and self.product_id):
            raise ValueError("resource_class: needed where vendor_id and product_id are not both given")


class PciSettings(Section, frozen=True, kw_only=True):
    """PCI devices."""

    alias: Annotated[tuple[PciAlias, ...], Meta(description="Names of devices, each a table `[[pci.alias]]`")] = ()

    def __post_init__(self) -> None:
        """Refuses two entries of one alias that differ in how near devices must be (Nova's rule)."""
        policies = {(one.name, one.numa_policy) for one in self.alias}
        for name in {one.name for one in self.alias}:
            if sum(other == name for other, _ in policies) > 1:
                raise ValueError(f"alias: the entries of `{name}` have different values of numa_policy")
