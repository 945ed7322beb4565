"""The tables of extra specs and properties are whole, and so is the page about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.api.extra_specs import KNOWN
from skep.compute.drivers.libvirt.keys import EXTRA_SPECS, IMAGE_PROPERTIES, KeyEffect, KeyRow, refused_keys, row_of
from skep.compute.drivers.libvirt.keys_page import render
from skep.compute.drivers.libvirt.means import HostMeans, host_means, is_q35
from skep.compute.drivers.libvirt.options import Options
from skep.domain import guest_keys
from skep.domain.guest_keys import AskedOfGuest, asked_of_guest
from tests.support.samples import examples

PAGE = Path(__file__).parents[4] / "docs" / "libvirt-properties.md"
EVERYTHING = HostMeans(
    machines=frozenset({"pc", "q35", "pc-q35-7.2"}),
    uefi=True,
    secure_boot=True,
    video_models=frozenset({"vga", "ramfb"}),
    cells=True,
    dedicated=True,
    devices=True,
    virt_type="kvm",
    cpu_model="host-passthrough",
)
NUMBERED = ("hw_numa_cpus", "hw_numa_mem")


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in KNOWN])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_every_extra_spec_that_the_api_knows_has_a_row(pattern: str, data: st.DataObject) -> None:
    key = data.draw(st.from_regex(pattern, fullmatch=True))
    assert row_of(EXTRA_SPECS, key) is not None, key


@pytest.mark.parametrize("key", sorted(guest_keys.IMAGE_PROPERTIES | guest_keys.KERNEL))
def test_every_property_has_a_row(key: str) -> None:
    assert row_of(IMAGE_PROPERTIES, f"{key}.0" if key in NUMBERED else key) is not None


def test_there_are_as_many_properties_as_nova_has() -> None:
    assert len(guest_keys.IMAGE_PROPERTIES) == 86


@pytest.mark.parametrize("rows", [EXTRA_SPECS, IMAGE_PROPERTIES])
def test_no_key_of_a_row_is_hidden_by_one_before(rows: tuple[KeyRow, ...]) -> None:
    for row in rows:
        for key in row.keys:
            assert row_of(rows, key.replace("*", "0")) is row, key


@pytest.mark.parametrize("rows", [EXTRA_SPECS, IMAGE_PROPERTIES])
def test_rows_say_what_they_are_for(rows: tuple[KeyRow, ...]) -> None:
    for row in rows:
        assert row.about
        assert bool(row.may_have) == (row.of_host is not None)
        assert not (row.effect is KeyEffect.NONE and (row.values or row.of_host))


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == render(), (
        "run `python -m skep.compute.drivers.libvirt.keys_page docs/libvirt-properties.md`"
    )


@pytest.mark.parametrize(
    ("specs", "properties", "refused"),
    [
        ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate", "hw:mem_page_size": "1GB"}, {}, []),
        ({"hw:numa_cpus.3": "1", "hw:cpu_dedicated_mask": "3"}, {"hw_numa_mem.0": "5", "hw_numa_nodes": "1"}, []),
        ({"hw:cpu_realtime": "yes", "hw:locked_memory": "1"}, {}, ["hw:cpu_realtime", "hw:locked_memory"]),
        ({"quota:cpu_limit": "5", "quota:cpu_quota": "5"}, {}, ["quota:cpu_quota"]),
        ({"quota:vif_shares_level": "low", "quota:vif_inbound_average": "1"}, {}, ["quota:vif_inbound_average"]),
        ({"hw:watchdog_action": "explode"}, {}, ["hw:watchdog_action"]),
        ({}, {"hw_machine_type": "virt", "hw_disk_bus": "fdc"}, ["hw_disk_bus", "hw_machine_type"]),
        ({}, {"hw_video_model": "vga", "hw_firmware_type": "uefi", "os_secure_boot": "required"}, []),
        ({}, {"hw_video_model": "ramfb"}, ["hw_video_model"]),
        ({}, {"kernel_id": "5"}, ["kernel_id"]),
        ({"resources:VCPU": "2", "trait:HW_CPU_X86_VMX": "required", "colour": "red"}, {"colour": "red"}, []),
    ],
)
def test_what_a_host_refuses(specs: dict[str, str], properties: dict[str, str], refused: list[str]) -> None:
    asked = asked_of_guest(specs, properties) or AskedOfGuest()
    assert list(refused_keys(EVERYTHING).of(asked)) == refused


def test_what_a_host_has_not_it_refuses() -> None:
    properties = {"hw_firmware_type": "uefi", "hw_maxphysaddr_mode": "emulate", "hw_video_model": "vga"}
    asked = asked_of_guest({"os:secure_boot": "required"}, properties)
    assert asked is not None
    assert list(refused_keys(HostMeans()).of(asked)) == ["os:secure_boot", *sorted(properties)]
    inside = {"hw:cpu_policy": "mixed", "hw:emulator_threads_policy": "isolate", "hw:numa_nodes": "1"}
    asked = asked_of_guest({**inside, "hw:numa_cpus.0": "0", "hw:cpu_dedicated_mask": "0"}, {"hw_cpu_policy": "shared"})
    assert asked is not None
    assert list(refused_keys(HostMeans()).of(asked)) == sorted({*inside, "hw:numa_cpus.0", "hw:cpu_dedicated_mask"})


def test_what_interfaces_may_have_depends_on_where_they_end() -> None:
    asked = asked_of_guest({"quota:vif_outbound_average": "1", "hw:vif_multiqueue_enabled": "true"}, {})
    assert asked is not None
    both = ["hw:vif_multiqueue_enabled", "quota:vif_outbound_average"]
    assert list(refused_keys(HostMeans()).of(asked)) == both
    assert list(refused_keys(HostMeans(networks="bridge")).of(asked)) == both[:1]
    assert list(refused_keys(HostMeans(networks="neutron")).of(asked)) == []


def test_rules_say_what_the_first_row_says() -> None:
    """The rules of a host have no order: no key that is refused may be one of an earlier row that is not."""
    for rows, rules in (
        (EXTRA_SPECS, refused_keys(HostMeans()).extra_specs),
        (IMAGE_PROPERTIES, refused_keys(HostMeans()).properties),
    ):
        told = {rule.keys for rule in rules}
        open_keys = {key for row in rows if row.is_open for key in row.keys}
        closed_keys = {key for row in rows if not row.is_open for key in row.keys}
        assert told == closed_keys
        assert not told & open_keys


def domain_capabilities(firmware: str = "", secure: str = "no", models: tuple[str, ...] = ("vga",)) -> str:
    values = "".join(f"<value>{model}</value>" for model in models)
    return (
        f"<domainCapabilities><os><enum name='firmware'>{firmware}</enum><loader><enum name='secure'>"
        f"<value>{secure}</value></enum></loader></os><devices><video><enum name='modelType'>{values}</enum></video>"
        "</devices></domainCapabilities>"
    )


def test_means_are_read_from_what_libvirt_says() -> None:
    capabilities = (
        "<capabilities><guest><arch name='x86_64'><machine>pc</machine><machine>isapc</machine>"
        "<machine>pc-q35-7.2</machine></arch></guest><guest><arch name='aarch64'><machine>pc-arm</machine></arch>"
        "</guest></capabilities>"
    )
    plain, efi = domain_capabilities(), domain_capabilities("<value>bios</value><value>efi</value>", "yes", ("qxl",))
    assert host_means(capabilities, plain, plain, Options(virt_type="qemu")) == HostMeans(
        machines=frozenset({"pc", "pc-q35-7.2"}), video_models=frozenset({"vga"})
    )
    options = Options(virt_type="kvm", cpu_model="host-passthrough", cpu_dedicated_set="1")
    found = host_means(capabilities, efi, efi, options)
    assert (found.uefi, found.secure_boot, found.video_models) == (True, True, frozenset({"qxl"}))
    assert found.address_modes == {"emulate", "passthrough"}
    assert (found.cells, found.dedicated) == (False, True)
    assert not host_means(capabilities, efi, plain, Options(virt_type="kvm")).secure_boot


def test_machines_with_pci_express() -> None:
    assert [is_q35(one) for one in ("q35", "pc-q35-7.2", "pc", "pc-i440fx-7.2")] == [True, True, False, False]
