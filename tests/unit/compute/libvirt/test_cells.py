"""The inside of hosts as libvirt tells it, and where guests are in it."""

from __future__ import annotations

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.cpu_traits import cpu_traits
from skep.compute.drivers.libvirt.guest_cells import GuestPlace, guest_place
from skep.compute.drivers.libvirt.host_cells import HostCell, host_cells, topology
from skep.compute.drivers.libvirt.options import Options
from skep.domain.providers import Allocation, NumaCell, Topology
from tests.support.libvirt_samples import CELLS, cell, server

CAPABILITIES = """
<capabilities><host><topology><cells num='2'>
<cell id='0'><memory unit='KiB'>4194304</memory>
<pages unit='KiB' size='4'>786432</pages><pages unit='KiB' size='2048'>512</pages>
<pages unit='KiB' size='1048576'>0</pages>
<cpus num='4'>
<cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0,2'/><cpu id='1' socket_id='0' die_id='0' core_id='1'/>
<cpu id='2' socket_id='0' die_id='0' core_id='0' siblings='0,2'/><cpu id='3' socket_id='0' die_id='0' core_id='1'/>
</cpus></cell>
<cell id='1'><pages unit='KiB' size='4'>1048576</pages>
<cpus num='3'>
<cpu id='4' socket_id='1' die_id='0' core_id='0'/><cpu id='5' socket_id='1' die_id='0' core_id='1'/><cpu id='6'/>
</cpus></cell>
</cells></topology></host></capabilities>
"""


def options(shared: str = "", dedicated: str = "") -> Options:
    return Options(virt_type="kvm", cpu_shared_set=shared, cpu_dedicated_set=dedicated)


def test_all_cpus_are_shared_where_nothing_is_set() -> None:
    first, second = host_cells(CAPABILITIES, options())
    assert first == HostCell(number=0, shared=(0, 1, 2, 3), pages=((4, 786432), (2048, 512)), threads=2)
    assert (second.shared, second.cores, second.socket, second.pages) == ((4, 5), (), 1, ((4, 1048576),))


def test_dedicated_cpus_are_by_core_and_the_rest_is_no_ones() -> None:
    first, second = host_cells(CAPABILITIES, options(dedicated="1-4"))
    assert (first.shared, first.cores, second.cores) == ((), ((2,), (1, 3)), ((4,),))
    first, _ = host_cells(CAPABILITIES, options("0,5", "1-4,^2"))
    assert (first.shared, first.cores) == ((0,), ((1, 3),))


def test_schedulers_are_told_of_cells() -> None:
    assert topology(host_cells(CAPABILITIES, options("0,5", "1,3"))) == Topology(
        cells=(
            NumaCell(number=0, cores=((1, 3),), shared_cpus=1, pages={4: 786432, 2048: 512}),
            NumaCell(number=1, shared_cpus=1, pages={4: 1048576}, socket=1),
        )
    )
    assert topology(host_cells("<capabilities/>", options())) is None


@pytest.mark.parametrize("named", [{"shared": "0,6"}, {"dedicated": "7"}])
def test_a_cpu_that_is_not_there_or_off_is_named(named: dict[str, str]) -> None:
    with pytest.raises(DriverError, match=r"_set: the host has no CPU [67]"):
        host_cells(CAPABILITIES, options(**named))


@pytest.mark.parametrize(
    ("kind", "shared", "dedicated", "why"),
    [
        ("kvm", "0-3", "3-4", "a CPU is in cpu_shared_set, too"),
        ("qemu", "0", "1", "virt_type kvm only"),
        ("kvm", "a", "", "cpu_shared_set"),
        ("kvm", "", "5-1", "cpu_dedicated_set"),
    ],
)
def test_sets_that_cannot_be_are_refused(kind: str, shared: str, dedicated: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Options(virt_type=kind, cpu_shared_set=shared, cpu_dedicated_set=dedicated)  # type: ignore[arg-type]


def test_a_guest_without_cells_is_on_the_shared_cpus() -> None:
    plain = server({}, {})
    assert guest_place(plain, None, CELLS, "kvm", confined=False) == GuestPlace()
    assert guest_place(plain, None, CELLS, "qemu", confined=True) == GuestPlace(cpus=(0, 2))


@pytest.mark.parametrize(
    ("specs", "allocation", "why"),
    [
        ({"hw:numa_nodes": "2"}, None, "2 NUMA cells, and 0 were allocated"),
        ({"hw:numa_nodes": "2"}, Allocation(cells=(cell(0, 4, memory_mb=256),)), "and 1 were"),
        ({"hw:numa_nodes": "1"}, Allocation(cells=(cell(7, 4, memory_mb=256),)), "no NUMA cell 7"),
        ({"hw:cpu_policy": "dedicated"}, Allocation(cells=(cell(0, 0, (1,), memory_mb=256),)), "4 pinned CPUs"),
        ({"hw:numa_nodes": "3"}, Allocation(), "hw:numa_nodes"),
    ],
)
def test_what_was_not_allocated_is_not_taken(specs: dict[str, str], allocation: Allocation | None, why: str) -> None:
    with pytest.raises(DriverError, match=why):
        guest_place(server(specs, {}), allocation, CELLS, "kvm", confined=False)


def test_traits_of_features() -> None:
    assert sorted(cpu_traits(["sse4.1", "avx512-vpopcntdq", "pni", "svm", "amx-bf16", "erms"])) == [
        "HW_CPU_X86_AMD_SVM",
        "HW_CPU_X86_AMXBF16",
        "HW_CPU_X86_AVX512VPOPCNTDQ",
        "HW_CPU_X86_ERMS",
        "HW_CPU_X86_SSE3",
        "HW_CPU_X86_SSE41",
        "HW_CPU_X86_SVM",
    ]
