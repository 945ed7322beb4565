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
    RESCUE = "rescue"
    """Boot a guest from a rescue disk, with its root disk beside it."""
    IMAGE = "image"
    """Make the disk of a guest from the bytes of an image."""
    CONFIG_DRIVE = "config_drive"
    """Give a guest a disk on which it reads about itself."""
    PASSWORD = "password"  # noqa: S105 - a name
    """Change the password of a guest's administrator while the guest runs."""
    CRASH_DUMP = "crash_dump"
    """Have a guest crash and leave a dump of its memory."""
    SNAPSHOT = "snapshot"
    """Make an image of a guest."""
    MOVE = "move"
    """Stop a guest and keep its disks, and make a guest from the disks of another attempt: to another host or size."""
    EVACUATE = "evacuate"
    """Make a guest anew that another host has lost. Every driver can; agents that do not say so do not know how."""
    REBUILD = "rebuild"
    """Put a guest aside with its disks, and take it up again if the one that was to take its place cannot be made."""
    PRESERVE = "preserve"
    """Give the ephemeral disks of an attempt to the one that takes its place."""
    LIVE_MIGRATE = "live_migrate"
    """Move a guest that runs to another host."""
    MOVE_BETWEEN_CELLS = "move_between_cells"
    """Take part in a cold move whose other host is in another cell: `move`, and an agent that knows of cells."""
    MOVE_BY_WIRE = "move_by_wire"
    """Give the disks of a cold move to the agent of its other host, and fetch them there: `move`, without a directory
    that both see."""
    ATTACH = "attach"
    """Attach volumes and interfaces to a guest, and detach them."""
    ATTACH_INTERFACE = "attach_interface"
    """Give interfaces to guests that are there, also to one that runs, and take them away."""
    ATTACH_VOLUME = "attach_volume"
    """Connect volumes to the host, give them to guests, also to one that runs, and take them away."""
    ENCRYPTED_VOLUME = "encrypted_volume"
    """Connect volumes that the volume service has encrypted."""
    SWAP_VOLUME = "swap_volume"
    """Copy a volume of a guest that runs to another one, and let the guest go on with that."""
    EXTEND_VOLUME = "extend_volume"
    """Tell a guest that a volume of it has become larger."""
    ASSISTED_SNAPSHOT = "assisted_snapshot"
    """Make a snapshot of a volume that is a file, for the volume service, while a guest uses it; and delete one."""
    HOST_INTERFACES = "host_interfaces"
    """Make interfaces that belong to the host: where a build goes to another host its ports are made anew."""
    NETWORKS = "networks"
    """Bring the networks of Skep's own network service to the guests of the host."""
    CONSOLE_OUTPUT = "console_output"
    """Tell what a guest has written to its console."""
    DIAGNOSTICS = "diagnostics"
    """Tell what the hypervisor measures of a guest."""
    SERIAL_CONSOLE = "serial_console"
    """Give users the serial line of a guest that runs."""
    VNC_CONSOLE = "vnc_console"
    """Give users the screen, keyboard and pointer of a guest that runs."""


CONFIG_DRIVE_TRAIT = "CUSTOM_SKEP_CONFIG_DRIVE"
"""The trait of hosts whose driver makes config drives: no other is a candidate for a server that is to have one."""
