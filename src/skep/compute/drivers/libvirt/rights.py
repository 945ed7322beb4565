"""What an agent that is root keeps of root's rights, by what its host does. Pure but for the look at a package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from skep.compute.drivers.libvirt.options import NetworksMode, Options

ALWAYS = frozenset(
    {
        "CHOWN",  # disks are given to QEMU's user
        "DAC_OVERRIDE",  # and read and removed afterwards
        "FOWNER",
        "KILL",  # guests are ended
        "SETGID",  # QEMU and programs for disks are started as that user
        "SETUID",
        "SETPCAP",  # without what is left here
        "SYS_NICE",  # guests are put on CPUs
        "SYS_RESOURCE",  # and may lock their memory
        "NET_BIND_SERVICE",  # ports of the agent are what an operator says
    }
)
NETWORKS: Mapping[NetworksMode, frozenset[str]] = {
    "user": frozenset(),
    "bridge": frozenset({"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}),
    "neutron": frozenset({"NET_ADMIN"}),
}
"""Links; with bridges rules, and network namespaces, in which dnsmasq runs."""
VOLUMES = frozenset({"SYS_ADMIN"})
"""NFS is mounted, and what the kernel remembers of a device is thrown away."""
LOGICAL_VOLUMES = frozenset({"SYS_ADMIN", "MKNOD", "IPC_LOCK"})
"""The device mapper is told of volumes, whose nodes LVM makes where udev does not."""
DEVICES = frozenset({"SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE"})
"""PCI devices are taken from their drivers, for which that of VFIO may have to be loaded."""


def kept_rights(options: Options) -> frozenset[str]:
    """Return the rights that an agent keeps, in Linux' words without `CAP_`."""
    kept = ALWAYS | NETWORKS[options.networks]
    if options.disks == "lvm":
        kept |= LOGICAL_VOLUMES
    if options.pci_devices:
        kept |= DEVICES
    if importlib.util.find_spec("os_brick") is not None:
        kept |= VOLUMES
    return kept
