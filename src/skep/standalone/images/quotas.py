"""How much of the image store one project may have, and how much of its disk all of them.

Refusals are worded as Glance words them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from skep.database.api.images import StoredImage, Usage
from skep.standalone.images.refusals import Beyond
from skep.standalone.images.settings import UNLIMITED, ImagesSettings

DISK_SHARE = 4
"""On a small disk a part of it is kept free instead: one in so many bytes."""


def check_number(project: str | None, used: Usage, settings: ImagesSettings) -> None:
    """Refuse another image. What belongs to no project is an admin's and has no quota.

    Raises TooLarge.
    """
    if project is None or settings.images_per_project == UNLIMITED or used.images < settings.images_per_project:
        return
    raise Beyond(
        "images",
        f"Project {project} is over a limit for [Resource image_count_total is over limit of "
        f"{settings.images_per_project} due to current usage {used.images} and delta 1]",
    )


def has_room(project: str | None, used: int, more: int, settings: ImagesSettings) -> bool:
    """Whether a project may store more bytes."""
    return project is None or settings.bytes_per_project == UNLIMITED or used + more <= settings.bytes_per_project


def check_bytes(project: str | None, used: int, more: int, settings: ImagesSettings) -> None:
    """Refuse bytes beyond what a project may store.

    Raises TooLarge.
    """
    if has_room(project, used, more, settings):
        return
    remaining = max(settings.bytes_per_project - used, 0)
    raise Beyond(
        "bytes",
        f"Image exceeds the storage quota: The size of the data {more} will exceed the limit. "
        f"{remaining} bytes remaining.",
    )


def check_description(before: StoredImage, after: StoredImage, settings: ImagesSettings) -> None:
    """Refuse more tags and properties than one image may have; what was more before may become less, or stay.

    Raises TooLarge.
    """
    for limit, what, most, had, has in (
        ("tags", "image tags", settings.image_tag_quota, len(before.tags), len(after.tags)),
        (
            "properties",
            "image properties",
            settings.image_property_quota,
            len(before.properties),
            len(after.properties),
        ),
        (
            "property_bytes",
            "bytes in image properties",
            settings.property_bytes,
            property_bytes(before),
            property_bytes(after),
        ),
    ):
        if UNLIMITED != most < has > had:
            raise Beyond(
                limit,
                f"The limit has been exceeded on the number of allowed {what}. Attempted: {has}, Maximum: {most}",
            )


def property_bytes(image: StoredImage) -> int:
    """Return how many bytes the names and values of an image's properties are."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in image.properties.items())


def kept_free(total: int, settings: ImagesSettings) -> int:
    """Return how many bytes uploads leave free on a disk of that size."""
    return min(settings.free_bytes, total // DISK_SHARE)


class Arriving:
    """Bytes on their way in, by project: they count beside the stored ones, so that many uploads at once are one."""

    def __init__(self) -> None:
        self._stored: dict[str | None, int] = {}
        self._arriving: Counter[str | None] = Counter()
        self._uploads: Counter[str | None] = Counter()

    def used(self, project: str | None) -> int:
        """Return what a project with an upload under way has stored and is just sending."""
        return self._stored.get(project, 0) + self._arriving[project]

    def know(self, project: str | None, stored: int) -> None:
        """Take in what a project with an upload under way has stored."""
        self._stored[project] = stored

    @contextlib.contextmanager
    def upload(self, project: str | None) -> Iterator[Callable[[int], None]]:
        """Count an upload while it lasts; what is yielded is told of its bytes."""
        arrived = 0

        def count(more: int) -> None:
            nonlocal arrived
            arrived += more
            self._arriving[project] += more

        self._uploads[project] += 1
        try:
            yield count
        finally:
            self._arriving[project] -= arrived
            self._uploads[project] -= 1
            if not self._uploads[project]:
                for counted in (self._stored, self._arriving, self._uploads):
                    counted.pop(project, None)
