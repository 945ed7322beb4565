"""What is noted of file systems that stand still, for an agent that comes after one that died."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.libvirt_hosts import PARTS

pytestmark = [*PARTS, pytest.mark.timeout(20)]


class GuestWithAgent:
    """A domain whose agent answers, or does not. It sees whether it is noted when it is asked to freeze."""

    def __init__(self, place: Path) -> None:
        self.note = place / ".frozen"
        self.answers = self.runs = True
        self.asked: list[tuple[str, bool]] = []

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's
        return "one"

    def isActive(self) -> bool:  # noqa: N802 - libvirt's
        return self.runs

    def agentSetResponseTimeout(self, _seconds: int) -> None:  # noqa: N802 - libvirt's
        self._answer("bound")

    def fsFreeze(self) -> None:  # noqa: N802 - libvirt's
        self._answer("freeze")

    def fsThaw(self) -> None:  # noqa: N802 - libvirt's
        self._answer("thaw")

    def _answer(self, asked: str) -> None:
        import libvirt

        if asked != "bound":
            self.asked.append((asked, self.note.exists()))
            if not self.answers:
                raise libvirt.libvirtError("the agent does not answer")


def test_it_is_noted_until_the_file_systems_go_on(tmp_path: Path) -> None:
    from skep.compute.drivers.libvirt.guest_agents import frozen, thaw_left  # they import what may not be installed

    guest = GuestWithAgent(tmp_path)
    with frozen(guest, tmp_path, required=True):
        assert guest.note.exists()
        guest.answers = False
    assert guest.asked == [("freeze", True), ("thaw", True)]
    assert guest.note.exists(), "its file systems may still stand still"
    guest.answers = True
    for _ in range(2):
        thaw_left(guest, tmp_path)
    assert guest.asked[2:] == [("thaw", True)]
    assert not guest.note.exists()


def test_a_guest_that_is_off_is_asked_nothing(tmp_path: Path) -> None:
    from skep.compute.drivers.libvirt.guest_agents import thaw_left

    guest = GuestWithAgent(tmp_path)
    guest.note.touch()
    guest.runs = guest.answers = False
    thaw_left(guest, tmp_path)
    assert (guest.asked, guest.note.exists()) == ([], False)
