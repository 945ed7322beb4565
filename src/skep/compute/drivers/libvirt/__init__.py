"""Guests of QEMU, by libvirt: the driver `libvirt` (docs/libvirt.md).

Only this package imports the module `libvirt`, and only where the driver is chosen.
"""
