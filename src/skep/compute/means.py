"""What an action needs beside its order: its secret arguments, opened; the file of an image; the way to a volume; the
network of an interface.

All are had before the host asks whether it may begin, so that its yes is not old when the guest is touched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from skep.compute import connections
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.volumes import OtherVolumeDriver
from skep.compute.host import Host
from skep.compute.image_transfers import Taker
from skep.compute.images import wrong_format
from skep.domain.actions import PLUG, PLUG_INTERFACE, SWAP, RescueGuest
from skep.domain.builds import BuildFailure
from skep.domain.decoding import convert, json_decoder
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.vifs import PlugInterface
from skep.domain.volumes import PlugVolume, SwapVolume
from skep.messages.to_compute import RunAction

SECRETS_SECONDS = 60.0
"""For how long a host without a key asks for secret arguments, before it refuses the action."""

CLOSED = "SecretsUnavailable: no key of this host or above its cell opens what the action is told"


@dataclass(frozen=True)
class Means:
    """What is there for an action."""

    contents: GuestContents | None = None
    """None: it has no secret arguments."""
    image: Path | None = None
    """None: it needs none, or the host gets no images."""
    volumes: connections.Volumes = ()
    """Those that it is about."""
    server: Instance | None = None
    """As it was when its guest was made, for an action that gives the guest something that depends on it."""


@asynccontextmanager
async def gathered(host: Host, order: RunAction) -> AsyncIterator[Means | str]:
    """Give what an action needs, for as long as it lasts; or the error with which it ends. Raises Stopping."""
    if order.action == PLUG:
        yield await _volume(host, order)
        return
    if order.action == SWAP:
        yield await _other_volume(host, order)
        return
    if order.action == PLUG_INTERFACE:
        yield await _interface(host, order)
        return
    contents = await _contents(host, order)
    if contents is None:
        yield CLOSED
        return
    image, images = _image(order), host.images
    if image is None or images is None:
        yield Means(contents)
        return
    wrong = wrong_format(image, host.image_formats)
    if wrong is not None:
        yield _said(wrong)
        return
    asking = partial(host.upcalls.ticket, order.instance, order.attempt, image.id, order.context, task_id=order.task_id)
    taken = await images.take(image, Taker(order.context, asking))
    if isinstance(taken, BuildFailure):
        yield _said(taken)
        return
    try:
        yield Means(contents, taken)
    finally:
        images.release(image)


async def _contents(host: Host, order: RunAction) -> GuestContents | None:
    """Return the secret arguments: by the host's own key, or from above the cell."""
    if order.secrets is None:
        return None
    contents = host.open_contents(order.secrets)
    if contents is not None:
        return contents
    until = host.clock.elapsed() + SECRETS_SECONDS
    asking = partial(host.upcalls.contents, wanted=lambda: host.clock.elapsed() < until, task_id=order.task_id)
    plain = await asking(order.instance, order.attempt, order.context)
    return None if plain is None else json_decoder(GuestContents).decode(plain)


async def _volume(host: Host, order: RunAction) -> Means | str:
    """Return the volume that a guest is to get, as the host reaches it."""
    return await _reached(host, order, convert(order.arguments, PlugVolume).attachment_id)


async def _other_volume(host: Host, order: RunAction) -> Means | str:
    """Return the volume that is to stand in the place of another, where the driver is to connect it."""
    if not isinstance(host.driver, OtherVolumeDriver):
        return Means()
    return await _reached(host, order, convert(order.arguments, SwapVolume).new_attachment_id)


async def _reached(host: Host, order: RunAction, attachment: str) -> Means | str:
    attachments = (attachment,)
    told = await connections.asked(host, order.instance, order.attempt, order.context, attachments)
    return _said(told) if isinstance(told, BuildFailure) else Means(volumes=told)


async def _interface(host: Host, order: RunAction) -> Means | str:
    """Have the network of an interface brought that a guest is to get, and return what its server is."""
    record = host.journal.attempts.get(order.instance)
    opened = None if record is None else record.open.get(order.attempt)
    if opened is None:
        return f"InstanceNotFound: host {host.name} has no attempt {order.attempt} of {order.instance}"
    if opened.described is None:
        return "InterfaceAttachFailed: an agent of before 0.7.0 made the guest; after a rebuild it gets interfaces"
    vif = convert(order.arguments, PlugInterface).vif
    server = msgspec.structs.replace(opened.described, vifs=(vif,))
    await host.bring(server)
    return Means(server=server)


def _image(order: RunAction) -> Image | None:
    return convert(order.arguments, RescueGuest).rescue_image if order.action == "rescue" else None


def _said(why: BuildFailure) -> str:
    return f"{why.error}: {why.message}"
