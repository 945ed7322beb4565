"""What goes over the wire between the two hosts of a cold move: frames in TLS in which both sides prove themselves.

Each run of an agent has a key and a certificate of its own, made when it starts and nowhere stored. Either side gets
the certificate of the other through the cell's conductor, in signed sessions, and believes that one certificate only.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import ssl
import struct
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

BLOCK = 256 * 1024
"""Bytes of a file that are read and sent at a time."""
ZEROS = bytes(BLOCK)
MOST_LINE = 1024
"""Bytes of a request."""
MOST_TEXT = 64 * 1024
"""Bytes of a manifest, or of the reason of a refusal."""
SAYING_SECONDS = 5.0
"""Within which a connection proves who it is, and then says for the first time what it wants."""
SILENT_SECONDS = 30.0
"""For which a peer may neither send nor take a byte."""

WAIT, MANIFEST, DATA, HOLE, END, REFUSED = b"W", b"M", b"D", b"H", b"E", b"R"
"""Kinds of frames: the source is at work on its answer; the manifest, JSON; bytes; so many zeros; the end of a file;
why there is no answer."""
MOST_OF_KIND = {WAIT: 0, MANIFEST: MOST_TEXT, DATA: BLOCK, HOLE: 2**32 - 1, END: 0, REFUSED: MOST_TEXT}
_HEADER = struct.Struct("!cI")
_LONG_AGO, _NEVER = datetime.datetime(1970, 1, 1), datetime.datetime(9999, 12, 31)  # noqa: DTZ001 - UTC, as X.509 has it
"""What counts is whose certificate it is: the clocks of hosts may differ by anything."""


class BrokenWire(ConnectionError):
    """A peer said what nobody may say."""


class RunProof:
    """The key and certificate of one run of an agent."""

    def __init__(self, host: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(_LONG_AGO).not_valid_after(_NEVER)
        signed = made.sign(key, hashes.SHA256())
        self.certificate = signed.public_bytes(Encoding.DER)
        """DER."""
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._pem = private + signed.public_bytes(Encoding.PEM)

    def context(self, other: bytes, *, serves: bool) -> ssl.SSLContext:
        """Return a context that shows this certificate and believes `other` (DER) only. Raises OSError for none."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=other)
        # Python loads keys from files only: this one has no name, and is gone when it is closed.
        descriptor = os.memfd_create("proof", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self._pem)
            file.flush()
            context.load_cert_chain(Path(f"/proc/self/fd/{descriptor}"))
        return context


def check_peer(writer: asyncio.StreamWriter, certificate: bytes) -> None:
    """Raise BrokenWire where the other side of a connection is not the one with this certificate."""
    shown = writer.get_extra_info("ssl_object")
    if shown is None or shown.getpeercert(binary_form=True) != certificate:
        raise BrokenWire("the other side did not prove to be the one that is meant")


class Pace:
    """How fast a host sends the disks of all its moves."""

    def __init__(self, mib_per_second: float) -> None:
        """0: as fast as it can."""
        self._rate = mib_per_second * 1024 * 1024
        self._next = 0.0

    async def take(self, number: int) -> None:
        """Wait until so many more bytes may go."""
        if not self._rate:
            return
        now = asyncio.get_running_loop().time()
        begins = max(now, self._next)
        self._next = begins + number / self._rate
        await asyncio.sleep(begins - now)


async def send(writer: asyncio.StreamWriter, kind: bytes, payload: bytes = b"", *, length: int | None = None) -> None:
    """Send a frame; of a hole its length is all. Raises OSError, and TimeoutError when the peer takes nothing."""
    writer.write(_HEADER.pack(kind, len(payload) if length is None else length))
    if payload:
        writer.write(payload)
    async with asyncio.timeout(SILENT_SECONDS):
        await writer.drain()


async def end(writer: asyncio.StreamWriter) -> None:
    """End a connection at once: what was not taken is not waited for, and TLS says no goodbye."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def receive(reader: asyncio.StreamReader) -> tuple[bytes, bytes, int]:
    """Return a frame: its kind, what it carries, and its length.

    Raises TimeoutError when the peer is silent, IncompleteReadError when it ended, BrokenWire for what is no frame.
    """
    async with asyncio.timeout(SILENT_SECONDS):
        kind, length = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        most = MOST_OF_KIND.get(kind)
        if most is None or length > most:
            raise BrokenWire(f"a frame of kind {kind!r} with {length} bytes is none")
        return kind, b"" if kind == HOLE else await reader.readexactly(length), length
