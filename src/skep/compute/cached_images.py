"""The story of images that a host fetches before a server needs them: one after another, each answered for."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import structlog

from skep.compute.host import Host
from skep.compute.image_cache import ImageCache
from skep.compute.image_transfers import Taker
from skep.compute.images import wrong_format
from skep.domain.builds import BuildFailure
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.ids import InstanceUuid
from skep.domain.image_caching import IN_THE_CACHE, CachedImage, CacheOutcome
from skep.domain.images import Image
from skep.messages.to_compute import AskAboutGuest

log = structlog.get_logger("skep.compute")

LONGEST_REASON = 500
"""Characters: the answer for all images has an end, too."""


async def cache_images(host: Host, asked: AskAboutGuest, context: RequestContext) -> bytes | str:
    """Fetch what a question names; return the answer, or the error that there is instead. Raises Stopping."""
    images = host.images
    if images is None:
        lacking = "[compute.images] has neither auth_url nor by_ticket"
        return f"NotSupportedByDriver: host {host.name} gets no images: {lacking}"
    try:
        wanted = [convert(one, Image) for one in asked.arguments.get("images", [])]
    except (msgspec.ValidationError, TypeError) as error:
        return f"NotSupportedByAgent: the agent of host {host.name} cannot read which images are meant: {error}"
    outcomes: list[CachedImage] = []
    for image in wanted:
        host.work.check()
        outcome = await _cache(host, images, image, asked, context)
        outcomes.append(outcome)
    await images.tidy()
    answer = [_as_left(images, image, outcome) for image, outcome in zip(wanted, outcomes, strict=True)]
    for one in answer:
        tell = log.info if one.outcome in IN_THE_CACHE else log.warning
        tell("image for the cache", host=host.name, image=one.id, outcome=one.outcome, reason=one.reason)
    return msgspec.json.encode(answer)


async def _cache(
    host: Host, images: ImageCache, image: Image, asked: AskAboutGuest, context: RequestContext
) -> CachedImage:
    wrong = wrong_format(image, host.image_formats)
    if wrong is not None:
        return _failed(image, wrong)
    there = images.holds(image)
    asking: Any = partial(
        host.upcalls.ticket, InstanceUuid(asked.question), 0, image.id, context, question=asked.question
    )
    taken = await images.take(image, Taker(context, asking))
    if isinstance(taken, BuildFailure):
        return _failed(image, taken)
    images.release(image)
    return CachedImage(id=image.id, outcome=CacheOutcome.EXISTING if there else CacheOutcome.CACHED)


def _as_left(images: ImageCache, image: Image, outcome: CachedImage) -> CachedImage:
    """Return what is said of an image in the end: one that others have taken the room of is not there."""
    if outcome.outcome not in IN_THE_CACHE or images.holds(image):
        return outcome
    reason = "NoSpaceLeft: the image cache has no room for it beside newer ones ([compute.images] cache_mib)"
    return CachedImage(id=image.id, outcome=CacheOutcome.ERROR, reason=reason)


def _failed(image: Image, why: BuildFailure) -> CachedImage:
    reason = f"{why.error}: {why.message}"[:LONGEST_REASON]
    return CachedImage(id=image.id, outcome=CacheOutcome.ERROR, reason=reason)
