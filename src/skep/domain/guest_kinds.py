"""Kinds of guests: those that images require, and those that hypervisors report. Names are Nova's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_ARCHITECTURES = {"amd64": "x86_64", "i386": "i686", "i486": "i686", "i586": "i686", "x86": "i686", "x86_32": "i686"}
_HYPERVISORS = {"xapi": "xen"}
_MODES = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}


class GuestKind(msgspec.Struct, frozen=True, kw_only=True):
    """What an image asks of the hypervisor; None where it does not ask."""

    architecture: str | None = None
    hypervisor_type: str | None = None
    vm_mode: str | None = None
    version: str | None = None
    """Conditions on the hypervisor's version, `>=2.6, <3.0`."""

    @property
    def is_asked_for(self) -> bool:
        """Whether anything is asked for. A version alone is not, as in Nova."""
        return bool(self.architecture or self.hypervisor_type or self.vm_mode)

    def __str__(self) -> str:
        parts = (self.architecture, self.hypervisor_type, self.vm_mode, self.version)
        return ", ".join(part for part in parts if part)


def guest_kind(properties: Mapping[str, str]) -> GuestKind | None:
    """Return what an image's properties ask for; None if they ask for nothing."""

    def given(*names: str) -> str | None:
        return next((properties[name] for name in names if properties.get(name)), None)

    kind = GuestKind(
        architecture=canonical_architecture(given("hw_architecture", "architecture")),
        hypervisor_type=_canonical(given("img_hv_type", "hypervisor_type"), _HYPERVISORS),
        vm_mode=_canonical(given("hw_vm_mode", "vm_mode"), _MODES),
        version=given("img_hv_requested_version", "hypervisor_version_requires"),
    )
    return kind if kind != GuestKind() else None


def canonical_architecture(name: str | None) -> str | None:
    """Return the one name of an architecture that has several."""
    return _canonical(name, _ARCHITECTURES)


def _canonical(name: str | None, others: Mapping[str, str]) -> str | None:
    if not name:
        return None
    name = name.lower()
    return others.get(name, name)
