"""What a run of the outside suite is read into: outcomes by name, reasons of whole classes, a page."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import msgspec

from skep_lab.tempest.known import known
from skep_lab.tempest.outcomes import Came, SuiteLine, SuiteOutcome, counted, page, read
from skep_lab.tempest.selection import LOGINS, chosen
from skep_lab.tempest.settings import Surroundings, sections, written

CLASS = "tempest.api.compute.servers.test_one.OneTest"
OTHER = "tempest.api.compute.volumes.test_two.TwoTest"
SELECTED = [f"{CLASS}.test_a[id-1,smoke]", f"{CLASS}.test_b[id-2]", f"{OTHER}.test_c[id-3]", f"{OTHER}.test_d[id-4]"]


def _lines(*told: SuiteLine) -> list[str]:
    return [msgspec.json.encode(one).decode() for one in told]


def test_a_list_names_tests_of_every_folder(tmp_path: Path) -> None:
    """Without one only those of the compute API run; a pattern narrows both."""
    scenario = "tempest.scenario.test_three.ThreeTest.test_e[id-5]"
    everything = [*SELECTED, scenario]
    assert chosen(everything, Namespace(regex="", exclude="", list=None)) == SELECTED
    names = tmp_path / "names"
    names.write_text(f"{CLASS}  # a class\n\n{scenario.partition('[')[0]}\n")
    assert chosen(everything, Namespace(regex="", exclude="", list=names)) == [*SELECTED[:2], scenario]
    assert chosen(everything, Namespace(regex="scenario", exclude="", list=names)) == [scenario]
    assert chosen(everything, Namespace(regex="", exclude="test_b", list=names)) == [SELECTED[0], scenario]


def test_what_logs_in_is_usual_where_guests_are_machines() -> None:
    """Another pattern, or a list, chooses of all tests."""
    actions = "tempest.api.compute.servers.test_server_actions.ServerActionsTestJSON.test_reboot_server_hard[id-6]"
    scenario = "tempest.scenario.test_network_basic_ops.TestNetworkBasicOps.test_hotplug_nic[id-7]"
    everything = [*SELECTED, actions, actions.replace("actions.", "actions_negative."), scenario]
    assert chosen(everything, Namespace(regex="", exclude="", list=None), LOGINS) == [actions, scenario]
    assert chosen(everything, Namespace(regex="test_one", exclude="", list=None), LOGINS) == SELECTED[:2]


def test_each_selected_test_has_an_outcome() -> None:
    outcomes = read(
        _lines(
            *(SuiteLine(test=test, status="exists") for test in SELECTED),
            SuiteLine(test=SELECTED[0], status="success", seconds=1.5),
            SuiteLine(test=SELECTED[1], status="fail", said="Traceback\nKeyError: 'x'"),
            SuiteLine(test=f"setUpClass ({OTHER})", status="skip", said="Cinder is not available"),
        ),
        SELECTED,
    )
    assert [(outcome.came, outcome.why.splitlines()[-1:]) for outcome in outcomes] == [
        (Came.PASSED, []),
        (Came.FAILED, ["KeyError: 'x'"]),
        (Came.SKIPPED, ["Cinder is not available"]),
        (Came.SKIPPED, ["Cinder is not available"]),
    ]
    assert outcomes[0].test == f"{CLASS}.test_a"
    assert counted(outcomes) == {"passed": 1, "failed": 1, "skipped": 2, "not run": 0}


def test_what_did_not_end_is_not_run() -> None:
    outcomes = read(_lines(SuiteLine(test=SELECTED[0], status="inprogress")), SELECTED[:2])
    assert {outcome.came for outcome in outcomes} == {Came.NOT_RUN}


def test_a_class_that_failed_fails_all_of_its_tests() -> None:
    outcomes = read(_lines(SuiteLine(test=f"setUpClass ({CLASS})", status="fail", said="ServerFault")), SELECTED[:2])
    assert outcomes == [SuiteOutcome(f"{CLASS}.{name}", Came.FAILED, "ServerFault") for name in ("test_a", "test_b")]


def test_the_page_lists_all_by_name() -> None:
    outcomes = [
        SuiteOutcome(f"{CLASS}.test_b", Came.PASSED),
        SuiteOutcome(f"{CLASS}.test_a", Came.PASSED),
        SuiteOutcome(f"{OTHER}.test_c", Came.SKIPPED, "Cinder is not available"),
        SuiteOutcome(f"{OTHER}.test_d", Came.FAILED, "404"),
    ]
    text = page(outcomes, {f"{OTHER}.test_d": "volumes"}, "make tempest BARE=1")
    assert "2 passed, 1 failed, 1 skipped" in text
    assert f"- **{CLASS}**: test_a, test_b\n" in text
    assert f"Cinder is not available:\n\n- **{OTHER}**: test_c\n" in text
    assert f"volumes:\n\n- **{OTHER}**: test_d\n" in text


def test_what_the_release_lacks_is_known_by_its_own_answer() -> None:
    said = "NotFound: Object not found\nDetails: {'code': 404, 'message': 'The resource could not be found: "
    said += "key pairs are not part of this release.'}"
    assert known(SuiteOutcome(f"{CLASS}.test_a", Came.FAILED, said)) == "Not part of this release: key pairs"
    assert known(SuiteOutcome(f"{CLASS}.test_a", Came.PASSED, said)) is None
    assert known(SuiteOutcome(f"{CLASS}.test_a", Came.FAILED, "AssertionError: 409 != 202")) is None


def test_what_logs_in_is_known_and_nothing_else_of_its_class() -> None:
    rebuilds = "tempest.api.compute.servers.test_server_actions.ServerActionsV293TestJSON"
    for networks in (True, False):
        logs_in = SuiteOutcome(f"{rebuilds}.test_rebuild_volume_backed_server", Came.FAILED, "InvalidParam")
        assert known(logs_in, networks=networks) == "Needs a login into the guest"
        assert known(SuiteOutcome(f"{rebuilds}.test_rebuild_server", Came.FAILED, "409"), networks=networks) is None


def test_no_module_of_the_suite_may_fail_as_a_whole() -> None:
    """Single tests may; a snapshot that is not made is a fault wherever it is looked for."""
    addresses = "tempest.api.compute.servers.test_server_addresses.ServerAddressesTestJSON"
    listed = known(SuiteOutcome(f"{addresses}.test_list_server_addresses", Came.FAILED, "{} is not true"))
    assert listed == "Not part of this release: networks"
    there = SuiteOutcome(f"{addresses}.test_list_server_addresses", Came.FAILED, "{} is not true")
    assert known(there, networks=True) is None
    assert known(SuiteOutcome(f"{addresses}.test_list_server_addresses_by_network", Came.FAILED, "{}")) is None
    images = "tempest.api.compute.images.test_images_negative.ImagesDeleteNegativeTestJSON"
    assert known(SuiteOutcome(f"{images}.test_delete_non_existent_image", Came.FAILED, "Details: 500")) is None


def test_the_configuration_has_neither_networks_nor_volumes(tmp_path: Path) -> None:
    cloud = Surroundings(
        auth_url="http://k/v3", region="r", password="p", images=("i", "j"), flavors=("f", "g"), hosts=1
    )
    text = written(sections(cloud, tmp_path))
    assert "[compute]\nimage_ref = i\nimage_ref_alt = j\n" in text
    for absent in ("neutron = false", "cinder = false", "live_migration = false"):
        assert absent in text


def test_the_configuration_of_a_cloud_with_networks(tmp_path: Path) -> None:
    cloud = Surroundings(
        auth_url="http://k/v3",
        region="r",
        password="p",
        images=("i", "j"),
        flavors=("f", "g"),
        hosts=1,
        external_network="n",
    )
    text = written(sections(cloud, tmp_path))
    for said in ("neutron = true", "cinder = false", "create_isolated_networks = true", "public_network_id = n\n"):
        assert said in text


def test_the_configuration_of_a_cloud_whose_guests_are_logged_into(tmp_path: Path) -> None:
    """Not so one of fake hosts."""
    fake = Surroundings(
        auth_url="http://k/v3", region="r", password="p", images=("i", "j"), flavors=("f", "g"), hosts=1
    )
    text = written(sections(fake, tmp_path))
    assert "run_validation = false" in text
    assert "vnc_console = false" in text
    text = written(sections(replace(fake, logs_in=True, seconds=400), tmp_path))
    for said in (
        "run_validation = true",
        "vnc_console = true",
        "ssh_timeout = 400",
        "build_timeout = 400",
        "back_and_forth = true",
    ):
        assert said in text
