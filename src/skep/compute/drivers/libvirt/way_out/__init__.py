"""A way to the outside for guests in user mode: QEMU is in a network namespace out of which slirp4netns leads."""
