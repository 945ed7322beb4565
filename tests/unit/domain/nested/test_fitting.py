"""Which parts of a host a request gets."""

from __future__ import annotations

from msgspec.structs import replace

from skep.domain.nested.fitting import allocate
from skep.domain.nested.room import Room, room_of
from skep.domain.nested.wanted import Group, GuestCell, NumaWanted, Wanted
from skep.domain.providers import Allocation, NumaCell, Provider, ProviderShare, Topology
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.simulator.inside import GPU, NIC, devices, host_with_inside, spec_for_parts

PINNED = {"hw:cpu_policy": "dedicated"}


def fit(room: Room, spec: RequestSpec) -> Allocation | None:
    asked = spec.wanted()
    assert asked is not None
    found = allocate(room, asked)
    if found is not None:
        assert room.has(found)
        room.take(found)
    return found


def small(*, cells: int = 2, cores: int = 4, threads: int = 2, gpus: int = 1, nics: int = 2, vgpus: int = 0) -> Room:
    usage = host_with_inside(
        cells=cells,
        cores=cores,
        threads=threads,
        shared=4,
        memory_mb=8192,
        huge_mb=4096,
        gpus=gpus,
        nics=nics,
        vgpus=vgpus,
    )
    return room_of(usage)


def test_pinned_cpus_are_of_one_cell_and_of_whole_cores_first() -> None:
    room = small()
    found = fit(room, spec_for_parts(4, 1024, PINNED))
    assert found is not None
    assert found.cells[0].cpus == (0, 1, 2, 3)


def test_a_broken_core_is_filled_before_another_is_broken() -> None:
    room = small(cells=1)
    fit(room, spec_for_parts(1, 512, PINNED))
    found = fit(room, spec_for_parts(1, 512, PINNED))
    assert found is not None
    assert found.cells[0].cpus == (1,)


def test_require_takes_whole_cores() -> None:
    room = small(cells=1)
    fit(room, spec_for_parts(1, 512, PINNED))
    require = PINNED | {"hw:cpu_thread_policy": "require"}
    found = fit(room, spec_for_parts(6, 512, require))
    assert found is not None
    assert found.cells[0].cpus == (2, 3, 4, 5, 6, 7)
    assert fit(room, spec_for_parts(2, 512, require)) is None


def test_isolate_needs_cores_of_one_thread() -> None:
    isolate = PINNED | {"hw:cpu_thread_policy": "isolate"}
    assert fit(small(), spec_for_parts(1, 512, isolate)) is None
    assert fit(small(threads=1), spec_for_parts(4, 512, isolate)) is not None


def test_cells_of_the_guest_are_in_different_cells_of_the_host() -> None:
    two = PINNED | {"hw:numa_nodes": "2"}
    found = fit(small(), spec_for_parts(8, 2048, two))
    assert found is not None
    assert sorted(share.cell for share in found.cells) == [0, 1]
    assert fit(small(cells=1), spec_for_parts(2, 2048, two)) is None


def test_pages_are_counted_by_size() -> None:
    room = small(cells=1)
    huge = {"hw:mem_page_size": "2MB"}
    found = fit(room, spec_for_parts(1, 4096, huge))
    assert found is not None
    assert found.cells[0].pages == {2048: 2048}
    assert fit(room, spec_for_parts(1, 2, huge)) is None
    assert fit(room, spec_for_parts(1, 4096, {"hw:mem_page_size": "any"})) is not None
    assert fit(room, spec_for_parts(1, 4, {"hw:mem_page_size": "small"})) is None


def test_memory_without_a_page_size_is_ordinary_memory_of_the_cell() -> None:
    room = small(cells=1)
    assert fit(room, spec_for_parts(1, 4096, {"hw:numa_nodes": "1"})) is not None
    assert fit(room, spec_for_parts(1, 1, {"hw:numa_nodes": "1"})) is None


def test_devices_must_be_near_where_that_is_required() -> None:
    room = small()
    fit(room, spec_for_parts(8, 1024, PINNED))
    required = spec_for_parts(8, 1024, PINNED, devices(GPU, 2, "required"))
    assert fit(small(), required) is None
    one = fit(room, spec_for_parts(2, 1024, PINNED, devices(GPU, 1, "required")))
    assert one is not None
    assert one.cells[0].cell == 1
    assert one.providers[0].devices == ("10de:1:0",)
    assert fit(room, spec_for_parts(2, 1024, PINNED, devices(GPU, 1, "required"))) is None
    assert fit(room, spec_for_parts(2, 1024, PINNED, devices(GPU, 1, "legacy"))) is None
    assert fit(room, spec_for_parts(2, 1024, PINNED, devices(GPU, 1, "preferred"))) is not None


def test_a_guest_that_asks_for_no_device_leaves_cells_with_devices_to_others() -> None:
    usage = host_with_inside(cells=2, gpus=0, nics=1)
    assert usage.topology is not None
    only_first = usage.topology.providers[:1]
    room = room_of(
        type(usage)(
            host="h",
            inventory=usage.inventory,
            used={},
            topology=type(usage.topology)(cells=usage.topology.cells, providers=only_first),
        )
    )
    found = fit(room, spec_for_parts(2, 512, PINNED))
    assert found is not None
    assert found.cells[0].cell == 1


def test_a_group_is_served_by_one_provider_with_its_traits() -> None:
    group = {"resources1:VGPU": "2", "trait1:CUSTOM_FIRST": "forbidden"}
    found = fit(small(vgpus=2), spec_for_parts(1, 512, group))
    assert found is not None
    assert found.providers[0].provider == "vgpu-1"
    assert fit(small(vgpus=2), spec_for_parts(1, 512, {"resources1:VGPU": "3"})) is None


def test_isolated_groups_have_different_providers() -> None:
    two = {"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"}
    found = fit(small(vgpus=2), spec_for_parts(1, 512, two))
    assert found is not None
    assert len(found.providers) == 2
    assert fit(small(vgpus=2, cells=1), spec_for_parts(1, 512, two)) is None
    assert fit(small(vgpus=2, cells=1), spec_for_parts(1, 512, two | {"group_policy": "none"})) is not None


def test_aliases_that_want_the_same_pools_are_matched() -> None:
    """The first alias could take what only the second can use; it is given the other pool."""
    room = small(cells=1, gpus=1, nics=1)
    either = devices(GPU)
    either = type(either)(alias="either", count=1, matches=(*devices(GPU).matches, *devices(NIC).matches))
    found = fit(room, spec_for_parts(1, 512, {}, either, devices(GPU)))
    assert found is not None
    assert {share.provider for share in found.providers} == {f"{GPU.lower()}-0", f"{NIC.lower()}-0"}


def test_what_is_given_back_is_free_again() -> None:
    room = small(cells=1)
    spec = spec_for_parts(8, 2048, PINNED | {"hw:mem_page_size": "large"}, devices(GPU))
    key = room.key
    found = fit(room, spec)
    assert found is not None
    assert fit(room, spec) is None
    assert room.exact
    room.give_back(found)
    assert room.key == key
    assert fit(room, spec) == found


def test_many_cells_of_which_one_is_too_small_are_soon_refused() -> None:
    """Looking at each order in which 24 cells can be handed out would never end."""
    cells = tuple(
        NumaCell(number=number, cores=tuple((4 * number + cpu,) for cpu in range(4 if number else 1)), pages={4: 65536})
        for number in range(24)
    )
    room = room_of(replace(host_with_inside(), topology=Topology(cells=cells)))
    numa = NumaWanted(cells=(GuestCell(shared=0, dedicated=2, memory_mb=16),) * 24, own_emulator=True)
    assert allocate(room, Wanted(numa=numa)) is None
    found = allocate(room, Wanted(numa=replace(numa, cells=numa.cells[:23])))
    assert found is not None
    assert room.has(found)


def test_a_cell_that_fits_one_place_alone_gets_it() -> None:
    cells = tuple(
        NumaCell(number=number, cores=tuple((8 * number + cpu,) for cpu in range(8 if number == 0 else 9)))
        for number in range(12)
    )
    room = room_of(replace(host_with_inside(), topology=Topology(cells=(*cells[1:], cells[0]))))
    guest = (*(GuestCell(shared=0, dedicated=9, memory_mb=0),) * 11, GuestCell(shared=0, dedicated=8, memory_mb=0))
    found = allocate(room, Wanted(numa=NumaWanted(cells=guest)))
    assert found is not None
    assert found.cells[-1].cell == 0


def test_many_groups_of_which_one_fits_nowhere_are_soon_refused() -> None:
    pools = tuple(Provider(name=f"p{number}", inventory={"VGPU": Inventory(total=20 + number)}) for number in range(20))
    room = room_of(replace(host_with_inside(), topology=Topology(providers=pools)))
    groups = tuple(Group(name=f"{number:02d}", resources=(("VGPU", 1),)) for number in range(20))
    assert allocate(room, Wanted(groups=groups, isolated=True)) is not None
    none = Group(name="99", resources=(("VGPU", 1000),))
    assert allocate(room, Wanted(groups=(*groups, none), isolated=True)) is None


def test_a_pool_of_which_another_class_is_held_still_gives_its_own() -> None:
    usage = host_with_inside(gpus=1, nics=0)
    held = ProviderShare(provider="custom_pci_10de_1eb8-0", resources={"VGPU": 3})
    room = room_of(replace(usage, taken=Allocation(providers=(held,))))
    found = fit(room, spec_for_parts(1, 64, {}, devices(GPU, 2)))
    assert found is not None
