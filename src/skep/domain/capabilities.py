"""What a hypervisor's driver may be able to do beyond making and removing guests."""

from __future__ import annotations

import enum


class Capability(enum.StrEnum):
    """The name of something that one driver can do and another cannot.

    A capability that no operation uses yet has a name only; its protocol comes with the first operation that uses it.
    """

    POWER = "power"
    """Start, stop and reboot a guest."""
    PAUSE = "pause"
    """Freeze a guest in memory and let it go on."""
    SUSPEND = "suspend"
    """Store the memory of a guest on disk and let the guest go on later."""
    IMAGE = "image"
    """Make the disk of a guest from the bytes of an image."""
    SNAPSHOT = "snapshot"
    """Make an image of a guest."""
    MOVE = "move"
    """Stop a guest and keep its disks, and make a guest from the disks of another attempt: to another host or size."""
    MIGRATE = "migrate"
    """Move a running guest to another host."""
    ATTACH = "attach"
    """Attach volumes and interfaces to a guest, and detach them."""
    CONSOLE = "console"
    """Show the console of a guest."""
