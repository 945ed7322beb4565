"""Network namespaces of hosts: however they are cut, the next start makes them whole, and an end leaves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support import bridged_hosts, cut_host_spaces
from tests.support.bridged_hosts import bridged_host

pytestmark = [*bridged_hosts.PARTS]


def test_what_is_cut_is_made_whole_and_removed(tmp_path: Path) -> None:
    with bridged_host(tmp_path) as machine:
        cuts = machine.run(sys.executable, "-m", cut_host_spaces.__name__)
    assert int(cuts) > 20
