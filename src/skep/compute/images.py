"""Whether an image fits the flavor that a server has and the driver of its host."""

from __future__ import annotations

from collections.abc import Iterable

from skep.domain.builds import BuildFailure, failure
from skep.domain.images import Image
from skep.domain.instances import Instance

GIB = 1024**3

FORMAT_TRAIT = "COMPUTE_IMAGE_TYPE_"
"""How the traits begin that name the disk formats a host boots from."""


def misfit(instance: Instance) -> BuildFailure | None:
    """Return why the server cannot be built from its image on any host, so that the build is aborted; None: it can."""
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
    if flavor.root_gb == 0 or instance.is_volume_backed:
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


def formats_of(traits: Iterable[str]) -> frozenset[str]:
    """Return the disk formats that a host boots from, by its traits; empty where they name none: any format."""
    return frozenset(trait.removeprefix(FORMAT_TRAIT).lower() for trait in traits if trait.startswith(FORMAT_TRAIT))


def wrong_format(image: Image, formats: frozenset[str]) -> BuildFailure | None:
    """Return why a host that boots from these formats cannot boot from an image; None when it can."""
    if not formats or image.disk_format is None or image.disk_format in formats:
        return None
    return failure(
        "DiskFormatNotSupported",
        f"Image {image.id} has the disk format {image.disk_format}, and the host boots from "
        f"{', '.join(sorted(formats))} only.",
    )
