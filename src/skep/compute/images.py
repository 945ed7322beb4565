"""Whether an image fits the flavor it is to be built with. One that does not fits on no host: the build is aborted."""

from __future__ import annotations

from skep.domain.builds import BuildFailure, failure
from skep.domain.instances import Instance

GIB = 1024**3


def misfit(instance: Instance) -> BuildFailure | None:
    """Return why the server cannot be built from its image on any host; None when it can."""
    image, flavor = instance.image, instance.flavor
    if image is None:
        return None
    if image.status != "active":
        return failure("ImageNotActive", f"Image {image.id} is not active: it is {image.status}.")
    if image.min_ram > flavor.memory_mb:
        return failure(
            "FlavorMemoryTooSmall",
            f"Flavor's memory of {flavor.memory_mb} MiB is less than the {image.min_ram} MiB that {image.id} needs.",
        )
    # A flavor with root_gb 0 takes its disk's size from the image; a volume brings its own size.
    if flavor.root_gb == 0 or _boots_from_volume(instance):
        return None
    if image.min_disk > flavor.root_gb:
        return failure(
            "FlavorDiskTooSmall",
            f"Flavor's disk of {flavor.root_gb} GiB is less than {image.min_disk} GiB, as image {image.id} needs.",
        )
    if image.size > flavor.root_gb * GIB:
        return failure(
            "FlavorDiskTooSmall",
            f"Flavor's disk of {flavor.root_gb} GiB is less than the {image.size} bytes of image {image.id}.",
        )
    return None


def _boots_from_volume(instance: Instance) -> bool:
    return any(device.boot_index == 0 and device.destination_type == "volume" for device in instance.block_devices)
