"""What runs on a host and what is being built, as far as placement weighs it. Read from the journal's records."""

from __future__ import annotations

from collections import Counter

from skep.compute.attempts import Attempts
from skep.domain.images import Image

MOST_PROPERTIES = 256
"""Different `name=value` that a report holds at most."""
LONGEST = 255
_PREFIXES = ("hw_", "img_", "os_")
"""Of properties that have a meaning to Nova; others are the image service's own."""


def weighed_properties(image: Image | None) -> dict[str, str]:
    """Return the properties of an image that placement may weigh."""
    if image is None:
        return {}
    return {
        name: value
        for name, value in sorted(image.properties.items())
        if name.startswith(_PREFIXES) and 0 < len(value) <= LONGEST and len(name) <= LONGEST
    }


def building(attempts: Attempts) -> int:
    """Return how many builds are under way, those that wait for their turn too."""
    return sum(opened.built is None for record in attempts.records.values() for opened in record.open.values())


def properties_of_images(attempts: Attempts) -> dict[str, int]:
    """Count the servers whose image has a property, by `name=value`: of very many the most common."""
    counts = Counter(
        f"{name}={value}"
        for record in attempts.records.values()
        for opened in record.open.values()
        if opened.built is not None
        for name, value in opened.built.image_properties.items()
    )
    common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_PROPERTIES]
    return dict(sorted(common))
