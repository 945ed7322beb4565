"""A broker is spoken to by TLS as the options of its address say."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.ids import RequestId
from skep.domain.notifications import payload
from skep.processes.ports import free_port
from skep.telemetry.notifier import Notification
from skep.telemetry.oslo_broker import OsloBroker, versioned
from skep_lab.rabbitmq import PROGRAM, RabbitServer
from tests.functional.notifications.test_broker import TOPIC
from tests.support.notification_listener import listening

pytestmark = [
    pytest.mark.needs_part(PROGRAM),
    # The library leaves a connection that came to nothing to the collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

DAY = datetime.timedelta(days=1)
SERVER = "i"


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate of loopback that signs itself; return its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


def send(url: str) -> None:
    broker = OsloBroker(url, [(versioned, (TOPIC,))])
    told = Notification(
        event_type="instance.lock",
        publisher_id="nova-api:h",
        priority="INFO",
        payload=payload("InstanceActionPayload", "1.8", {"uuid": SERVER}),
        timestamp="2026-01-31 12:00:00.123456",
        message_id="m",
        context=RequestContext(request_id=RequestId("req-1")),
    )
    try:
        for message in broker.messages(told):
            broker.send(message)
    finally:
        broker.close()


async def test_a_certificate_that_is_trusted_and_one_that_is_not(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "broker")
    other, _ = certificate(tmp_path, "other")
    port = free_port()
    config = (
        f"listeners.ssl.1 = 127.0.0.1:{port}\n"
        f"ssl_options.cacertfile = {cert}\n"
        f"ssl_options.certfile = {cert}\n"
        f"ssl_options.keyfile = {key}\n"
    )
    by_tls = f"rabbit://guest:guest@127.0.0.1:{port}/?ssl=true&ssl_ca_file="
    async with RabbitServer(tmp_path / "rabbitmq", config=config) as rabbit:
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(send, f"{by_tls}{other}")
        await asyncio.to_thread(send, f"{by_tls}{cert}")
        with listening(rabbit.url, TOPIC) as consumer:
            [heard] = await consumer.hears(SERVER, "instance.lock")
            assert heard.metadata["message_id"] == "m"
