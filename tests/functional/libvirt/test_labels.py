"""Labels of security modules that the libvirt inside an agent gives to guests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.libvirt_hosts import PARTS

pytestmark = [*PARTS]


@pytest.mark.parametrize("forced", [False, True], ids=["none", "SELinux"])
def test_only_those_of_selinux_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forced: bool) -> None:
    """libvirt takes AppArmor's by itself where a profile `libvirtd` is loaded, and the agent may load none."""
    from skep.compute.drivers.libvirt import connection  # it imports what may not be installed

    monkeypatch.setattr(connection, "SELINUX", tmp_path if forced else tmp_path / "absent")
    connection.embedded(tmp_path / "libvirt", None, "")
    said = (tmp_path / "libvirt" / "etc" / "qemu.conf").read_text()
    assert ('security_driver = "none"' in said) is not forced
