"""Tickets for images: for one image, for some minutes, by the key of this cloud, and nothing else is one."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.fernet import Fernet

from skep.domain.clock import SECOND
from skep.neighbours.images.tickets import TICKET_SECONDS, ImageTicket, image_of, write_ticket
from skep.standalone.key_ring import KeyRing

IMAGE = "11111111-aaaa-4aaa-8aaa-111111111111"
NOW = 1_700_000_000 * SECOND


@pytest.fixture
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys") / "secrets.key")


def ticket(keys: KeyRing, image: str = IMAGE) -> str:
    written = write_ticket(keys.encrypt, image, NOW)
    assert written is not None
    return written


def test_a_ticket_names_its_image_until_it_is_over(keys: KeyRing) -> None:
    written = ticket(keys, IMAGE.upper())
    end = NOW + TICKET_SECONDS * SECOND
    assert [image_of(keys.decrypt, written, now) for now in (NOW, end - 1, end)] == [IMAGE, IMAGE, None]
    assert IMAGE not in written


def test_a_ticket_is_for_reading_or_for_storing(keys: KeyRing) -> None:
    reads, stores = ticket(keys), write_ticket(keys.encrypt, IMAGE, NOW, store=True)
    assert stores is not None
    for written, may_store in ((reads, False), (stores, True)):
        assert image_of(keys.decrypt, written, NOW, store=may_store) == IMAGE
        assert image_of(keys.decrypt, written, NOW, store=not may_store) is None


def test_the_ticket_of_another_cloud_is_none(keys: KeyRing) -> None:
    other = Fernet(Fernet.generate_key())
    written = write_ticket(other.encrypt, IMAGE, NOW)
    assert written is not None
    assert image_of(keys.decrypt, written, NOW) is None


@pytest.mark.parametrize("text", ["", "x", "?", "ü" * 200])
def test_what_was_not_sealed_is_no_ticket(keys: KeyRing, text: str) -> None:
    assert image_of(keys.decrypt, text, NOW) is None


def test_what_else_the_key_seals_is_no_ticket(keys: KeyRing) -> None:
    content = {"image": IMAGE, "until": NOW * 2}
    for plain in (
        msgspec.json.encode(content),
        b"skep image ticket ",
        b"skep image ticket " + msgspec.json.encode({**content, "more": 1}),
        b"skep image ticket " + msgspec.json.encode({"image": IMAGE}),
    ):
        assert image_of(keys.decrypt, keys.encrypt(plain).decode(), NOW) is None


def test_without_a_key_there_is_none() -> None:
    assert write_ticket(lambda _: None, IMAGE, NOW) is None


def test_a_ticket_is_in_no_log(keys: KeyRing) -> None:
    written = ImageTicket(url="http://images", ticket=ticket(keys))
    assert written.ticket not in f"{written!r} {written}"
