"""Certificates of hosts of libvirt and QEMU, under the names that both look for."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
NAMES = {
    "ca": ("cacert.pem", "ca-cert.pem"),
    "server": ("servercert.pem", "server-cert.pem"),
    "server key": ("serverkey.pem", "server-key.pem"),
    "client": ("clientcert.pem", "client-cert.pem"),
    "client key": ("clientkey.pem", "client-key.pem"),
}
"""Files of libvirt and of QEMU."""
PURPOSES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class Authority:
    """Signs certificates of addresses."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._own = self._signed(self._name, self._key.public_key(), None)

    def write(self, directory: Path, *, names: int | None = None, address: str = "127.0.0.1") -> None:
        """Write its certificate and those of a host, with their keys: under all names, or those of one program."""
        directory.mkdir(exist_ok=True)
        # QEMU's user reads them, whatever the umask of this process is by now.
        directory.chmod(0o755)
        said = {"ca": self._own}
        for kind, purpose in PURPOSES.items():
            key = ec.generate_private_key(ec.SECP256R1())
            who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, kind)])
            said[kind] = self._signed(who, key.public_key(), purpose, address)
            said[f"{kind} key"] = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for kind, content in said.items():
            for name in NAMES[kind] if names is None else NAMES[kind][names : names + 1]:
                (directory / name).write_bytes(content)
                (directory / name).chmod(0o644)

    def _signed(
        self, who: x509.Name, key: ec.EllipticCurvePublicKey, purpose: x509.ObjectIdentifier | None, address: str = ""
    ) -> bytes:
        now, ca = datetime.datetime.now(datetime.UTC), purpose is None
        usage = x509.KeyUsage(
            digital_signature=not ca,
            key_encipherment=not ca,
            key_cert_sign=ca,
            crl_sign=False,
            content_commitment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            x509.CertificateBuilder()
            .subject_name(who)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        if purpose is not None:
            made = made.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            made = made.add_extension(named, critical=False)
        return made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
