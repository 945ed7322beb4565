"""What an enrolment leaves on a machine, whole or not at all, and again."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from skep.compute.enrolled_config import Sections, renewed
from skep.compute.enrolment import EnrolledCell, Enrolment, Messaging, begin, complete
from skep.compute.identity import load, load_or_mint
from skep.config import load as load_config
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid

ANSWER = Enrolment(
    cell=EnrolledCell(uuid=CellUuid("0b6c7f0e-1f4e-4f0e-8a57-0d8a3a3a1a01"), name="cell1"),
    host="h1",
    messaging=Messaging(url='nats://u:p"w@nats:4222', prefix="skep", ca="PEM"),
)


def test_the_identity_that_asked_is_the_hosts(tmp_path: Path) -> None:
    asked = begin(tmp_path, "h1")
    assert begin(tmp_path, "h1") == asked, "who was interrupted asks with the same key"
    directory = complete(tmp_path, ANSWER, tmp_path / "compute.toml")
    assert directory == tmp_path / "hosts" / "cell1" / "h1"
    assert load(directory) == asked
    assert not (tmp_path / "enrolling" / "h1").exists()
    assert begin(tmp_path, "h1") == asked, "and who is a host already, too"
    assert complete(tmp_path, ANSWER, tmp_path / "compute.toml") == directory
    assert load_or_mint(directory, "h1") == asked


def test_a_host_of_another_cell_is_told_what_to_do(tmp_path: Path) -> None:
    begin(tmp_path, "h1")
    former = complete(tmp_path, ANSWER, tmp_path / "compute.toml")
    moved = replace(ANSWER, cell=replace(ANSWER.cell, name="cell2"))
    begin(tmp_path, "h1")
    with pytest.raises(Misconfigured, match=r"as one of cell cell1, and it was enrolled into cell cell2: .* move"):
        complete(tmp_path, moved, tmp_path / "compute.toml")
    assert not (tmp_path / "hosts" / "cell2").exists()
    former.rename(tmp_path / "away")
    begin(tmp_path, "h1")
    assert load(complete(tmp_path, moved, tmp_path / "compute.toml")) is not None


def test_the_configuration_says_all_that_the_agent_needs(tmp_path: Path) -> None:
    begin(tmp_path, "h1")
    complete(tmp_path, ANSWER, tmp_path / "compute.toml")
    assert tomllib.loads((tmp_path / "compute.toml").read_text()) == {
        "state": {"directory": str(tmp_path)},
        "transport": {
            "kind": "nats",
            "url": ANSWER.messaging.url,
            "prefix": "skep",
            "ca_file": str(tmp_path / "ca.pem"),
        },
        "compute": {"cell": ANSWER.cell.uuid, "cell_name": "cell1", "host": "h1"},
    }
    assert (tmp_path / "ca.pem").read_text() == "PEM"
    assert (tmp_path / "compute.toml").stat().st_mode & 0o077 == 0


OF_THE_OPERATOR = """
# The hypervisor of this machine.
driver = "libvirt"
driver_options = { virt_type = "kvm", url = "not that of [transport]" }
cpu_allocation_ratio = 2.0

[compute.images] # by ticket
by_ticket = true

[[compute.providers]]
name = "card"
cell = "none of the enrolment"

[process]
health_port = 8780
"""


def test_what_an_operator_has_added_stays(tmp_path: Path) -> None:
    """A host is enrolled again when passwords change, or a database was restored."""
    config = tmp_path / "compute.toml"
    begin(tmp_path, "h1")
    messaging = replace(ANSWER.messaging, credentials="a secret\n", inbox="_INBOX.n")
    complete(tmp_path, replace(ANSWER, messaging=messaging), config)
    config.write_text(config.read_text() + OF_THE_OPERATOR)
    before = tomllib.loads(config.read_text())
    later = replace(ANSWER, messaging=replace(messaging, url="nats://other:4222", inbox=""))
    begin(tmp_path, "h1")
    complete(tmp_path, later, config)
    after = tomllib.loads(config.read_text())
    transport = {**before["transport"], "url": "nats://other:4222"}
    del transport["inbox"]
    assert after == {**before, "transport": transport}
    assert OF_THE_OPERATOR in config.read_text(), "with its comments"
    again = config.read_text()
    complete(tmp_path, later, config)
    assert config.read_text() == again


@pytest.mark.parametrize(
    "added",
    [
        "labels = '''\nhost = \"h2\"\n'''\n",
        "no toml\n",
    ],
)
def test_what_cannot_be_changed_line_by_line_is_left_as_it_is(tmp_path: Path, added: str) -> None:
    config = tmp_path / "compute.toml"
    begin(tmp_path, "h1")
    complete(tmp_path, ANSWER, config)
    config.write_text(config.read_text() + added)
    before = config.read_text()
    with pytest.raises(Misconfigured, match=r"compute\.toml is written in a form .*: move it away, enrol again"):
        complete(tmp_path, replace(ANSWER, messaging=replace(ANSWER.messaging, ca="OTHER")), config)
    assert config.read_text() == before
    assert (tmp_path / "ca.pem").read_text() == "PEM", "nothing is half done"


@given(st.lists(st.sampled_from([*OF_THE_OPERATOR.splitlines(), "[state]", 'host = "h2"', "[compute]"])))
def test_what_is_added_is_kept_whole_or_refused(lines: list[str]) -> None:
    said: Sections = {"compute": {"host": "h1"}, "transport": {"inbox": None, "url": "nats://other"}}
    before = "\n".join(["# mark", "[compute]", 'host = "h0"', *lines])
    try:
        after = tomllib.loads(renewed(Path("compute.toml"), before, "# mark", said))
    except Misconfigured:
        return
    was = tomllib.loads(before)
    assert (after["compute"].pop("host"), after["transport"].pop("url")) == ("h1", "nats://other")
    was["compute"].pop("host")
    assert after == {**was, "transport": was.get("transport", {})}


def test_a_host_with_a_nats_user_of_its_own_keeps_its_credentials_to_itself(tmp_path: Path) -> None:
    begin(tmp_path, "h1")
    messaging = replace(ANSWER.messaging, url="nats://nats:4222", credentials="a secret\n", inbox="_INBOX.n")
    directory = complete(tmp_path, replace(ANSWER, messaging=messaging), tmp_path / "compute.toml")
    file = directory / "nats.creds"
    assert file.read_text() == "a secret\n"
    assert file.stat().st_mode & 0o077 == 0
    transport = load_config(tmp_path / "compute.toml", {}).config.transport
    assert (transport.credentials_file, transport.inbox) == (str(file), "_INBOX.n")
    assert "a secret" not in (tmp_path / "compute.toml").read_text() + repr(messaging)


def test_what_is_somebody_elses_is_not_written_over(tmp_path: Path) -> None:
    begin(tmp_path, "h1")
    config = tmp_path / "compute.toml"
    config.write_text("[compute]\n")
    with pytest.raises(Misconfigured, match="--output"):
        complete(tmp_path, ANSWER, config)
    assert config.read_text() == "[compute]\n"


def test_a_host_in_two_cells_is_none(tmp_path: Path) -> None:
    for cell in ("a", "b"):
        load_or_mint(tmp_path / "hosts" / cell / "h1", "h1")
    with pytest.raises(Misconfigured, match="in 2 cells"):
        begin(tmp_path, "h1")
