"""A tiny guest to try a cloud with, 17 MB of Debian's packages: Linux, BusyBox, Dropbear, an agent (docs/libvirt.md).

It is made without root: packages are fetched and unpacked, not installed, and nothing is mounted.
"""
