"""A tiny guest to try a cloud with: Linux, BusyBox and Dropbear of Debian's packages, 15 MB (docs/libvirt.md).

It is made without root: packages are fetched and unpacked, not installed, and nothing is mounted.
"""
