"""Connections to the screens of guests.

QEMU listens nowhere for a screen. libvirt hands each connection to QEMU as an open socket, so that no other user of
the host can come to it, whatever the modes of files are.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.domain.ids import InstanceUuid

MOST = 64 * 1024
"""Bytes of one piece."""


def screen_of(domain: libvirt.virDomain, instance: InstanceUuid) -> socket.socket:
    """Return a connection to the screen of a guest that is not off. Raises DriverError, libvirt.libvirtError."""
    if ET.fromstring(domain.XMLDesc()).find("devices/graphics") is None:  # noqa: S314 - of libvirt
        raise DriverError("ConsoleNotReady", f"{instance} runs without a screen; it gets one when it is started anew")
    return socket.socket(fileno=domain.openGraphicsFD(0, libvirt.VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH))


class ScreenLine:
    """One connection to a screen."""

    def __init__(self, instance: InstanceUuid, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._instance = instance
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Return what the screen sent; empty when the guest is off, or the line was given back."""
        try:
            return await self._reader.read(MOST)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Send keys and the pointer; waits while the guest takes nothing."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise DriverError("InstanceNotRunning", f"{self._instance}: its screen is gone") from error

    async def close(self) -> None:
        """Give the line back."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def connect(instance: InstanceUuid, screen: socket.socket) -> ScreenLine:
    """Return the line over a connection to a screen."""
    reader, writer = await asyncio.open_unix_connection(sock=screen, limit=MOST)
    return ScreenLine(instance, reader, writer)
