"""What a server takes on a host, and what its flavor asks of one."""

from __future__ import annotations

import pytest

from skep.domain.flavors import Flavor
from skep.domain.ids import ProjectId, UserId
from skep.domain.quotas import COUNTED, QuotaCharge, charge_of
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU


def flavor(root: int = 20, ephemeral: int = 5, swap: int = 0, **extra_specs: str) -> Flavor:
    specs = {key.replace("__", ":"): value for key, value in extra_specs.items()}
    return Flavor(
        flavorid="1", name="f", vcpus=2, memory_mb=512, root_gb=root, ephemeral_gb=ephemeral, swap_mb=swap,
        extra_specs=specs,
    )  # fmt: skip


def spec(of: Flavor, *, volume: bool = False) -> RequestSpec:
    return RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=of, boot_from_volume=volume)


@pytest.mark.parametrize(("swap", "gigabytes"), [(0, 25), (1, 26), (1024, 26), (1025, 27)])
def test_disk_is_root_and_ephemeral_and_swap_rounded_up(swap: int, gigabytes: int) -> None:
    assert flavor(swap=swap).resources() == {VCPU: 2, MEMORY_MB: 512, DISK_GB: gigabytes}


def test_a_flavor_without_disk_takes_none() -> None:
    assert DISK_GB not in flavor(root=0, ephemeral=0).resources()


def test_extra_specs_override_add_and_take_out() -> None:
    found = flavor(resources__VCPU="0", resources__DISK_GB="7", resources__CUSTOM_GOLD="3").resources()
    assert found == {MEMORY_MB: 512, DISK_GB: 7, "CUSTOM_GOLD": 3}


@pytest.mark.parametrize("nonsense", ["", "many", "-1", "1.5", "²"])
def test_an_amount_that_is_no_number_is_left_out(nonsense: str) -> None:
    assert flavor(resources__VCPU=nonsense).resources()[VCPU] == 2


def test_other_extra_specs_are_not_resources() -> None:
    assert flavor(hw__cpu_policy="dedicated", resourcesX__VCPU="9").resources() == flavor().resources()


def test_traits_are_required_or_forbidden() -> None:
    asked = flavor(
        trait__HW_B="required", trait__HW_A="required", trait__HW_C="forbidden", trait__HW_D="wished", other="required"
    )
    assert asked.required_traits() == ("HW_A", "HW_B")
    assert asked.forbidden_traits() == ("HW_C",)


def test_a_server_on_a_volume_needs_no_local_root() -> None:
    assert spec(flavor(swap=1024)).resources()[DISK_GB] == 26
    assert spec(flavor(swap=1024), volume=True).resources()[DISK_GB] == 6
    assert DISK_GB not in spec(flavor(ephemeral=0), volume=True).resources()


def test_a_disk_amount_that_the_operator_gave_holds_for_volumes_too() -> None:
    assert spec(flavor(resources__DISK_GB="30"), volume=True).resources()[DISK_GB] == 30
    assert DISK_GB not in spec(flavor(resources__DISK_GB="0"), volume=True).resources()


def test_quota_counts_the_flavors_own_numbers() -> None:
    assert charge_of(flavor(resources__VCPU="0")) == QuotaCharge(instances=1, cores=2, ram=512)
    assert QuotaCharge.__struct_fields__ == COUNTED
