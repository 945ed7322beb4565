"""The rules of a build: its steps, what a failure becomes, how a decision reads."""

from __future__ import annotations

from typing import get_args

import pytest

from skep.domain.builds import (
    ABORTING,
    BY_POLICY,
    NETWORK_ABORTS,
    STEPS,
    Actor,
    Explanation,
    FailureKind,
    NearMiss,
    NoValidHost,
    Refused,
    StageCount,
    failure,
    kind_of,
)
from skep.domain.ids import NodeUuid

NETWORK = (
    "NoMoreFixedIps ExternalNetworkAttachForbidden VirtualInterfaceCreateException "
    "VirtualInterfaceMacAddressException FixedIpInvalidOnHost UnableToAutoAllocateNetwork "
    "NetworksWithQoSPolicyNotSupported VTPMSecretForbidden"
).split()
IMAGE = (
    "FlavorDiskTooSmall FlavorMemoryTooSmall ImageNotActive ImageUnacceptable InvalidDiskInfo InvalidDiskFormat "
    "SignatureVerificationError CertificateValidationFailed VolumeEncryptionNotSupported InvalidInput "
    "RequestedVRamTooHigh"
).split()
DISKS = "BlockDevicePrepFailed OverQuota InvalidBDM InstanceUnacceptable".split()
OTHERS = "BuildAbortException CleanupFailed".split()


@pytest.mark.parametrize("error", [*NETWORK, *IMAGE, *DISKS, *OTHERS])
def test_what_no_other_host_would_do_better_is_never_rescheduled(error: str) -> None:
    assert kind_of(error) is FailureKind.ABORT


def test_the_list_of_aborts() -> None:
    assert {*NETWORK, *IMAGE, *DISKS, *OTHERS} == ABORTING


@pytest.mark.parametrize("error", ["ComputeResourcesUnavailable", "SpawnFailed", "InternalError", "", "abort"])
def test_everything_else_in_a_build_is_tried_on_another_host(error: str) -> None:
    assert kind_of(error) is FailureKind.RESCHEDULE


def test_a_violated_group_policy_does_not_count_against_the_host() -> None:
    assert kind_of("GroupAffinityViolation") is FailureKind.RESCHEDULE_BY_POLICY
    assert not BY_POLICY & ABORTING


@pytest.mark.parametrize("error", NETWORK)
def test_failed_networks_say_so(error: str) -> None:
    told = failure(error, "no address left")
    assert told.message == "Failed to allocate the network(s), not rescheduling. no address left"
    assert failure(error, "").message == "Failed to allocate the network(s), not rescheduling."


@pytest.mark.parametrize("error", [*IMAGE, *OTHERS, "SpawnFailed"])
def test_other_failures_keep_their_own_words(error: str) -> None:
    assert failure(error, "as it was").message == "as it was"
    assert failure(error, "as it was").error == error


def test_network_failures_are_aborts() -> None:
    assert NETWORK_ABORTS <= ABORTING


def explanation(considered: int, *stages: tuple[str, int], lacks: dict[str, int] | None = None) -> Explanation:
    nearest = () if lacks is None else (NearMiss(node=NodeUuid("n"), host="secret", stage="capacity", lacks=lacks),)
    return Explanation(
        considered=considered,
        stages=tuple(StageCount(*stage) for stage in stages),
        nearest=nearest,
        rejected={"secret": "capacity"},
    )


def test_an_explanation_reads_in_one_line_without_a_hosts_name() -> None:
    told = explanation(6, ("availability zone nova", 4), ("capacity", 0), lacks={"VCPU": 2, "MEMORY_MB": 1024})
    assert told.summary() == (
        "6 hosts considered; 4 left by availability zone nova; 0 left by capacity "
        "(nearest miss lacks 1024 MEMORY_MB, 2 VCPU)"
    )


def test_an_explanation_of_one_host_and_of_none() -> None:
    assert explanation(1, ("capacity", 0)).summary() == "1 host considered; 0 left by capacity"
    assert explanation(0).summary() == "0 hosts considered"
    assert explanation(1, lacks={}).summary() == "1 host considered"


def test_no_valid_host_says_its_reason_or_else_its_stages() -> None:
    assert NoValidHost(explanation=explanation(2, ("traits", 0))).message() == (
        "No valid host: 2 hosts considered; 0 left by traits"
    )
    assert NoValidHost(explanation=explanation(2), reason="too few").message() == "No valid host: too few"


def test_a_refusal_says_what_is_lacking() -> None:
    assert Refused(lacks={"VCPU": 1, "DISK_GB": 20}).message() == (
        "Insufficient compute resources: lacks 20 DISK_GB, lacks 1 VCPU"
    )


def test_each_step_has_an_actor_and_each_actor_a_step() -> None:
    assert {step.actor for step in STEPS.values()} == set(get_args(Actor))
    assert all(step.name == name for name, step in STEPS.items())


def test_the_steps_of_a_build_stand_in_their_order() -> None:
    way = "store take select stage map settle dispatch claim may_build prepare may_spawn spawn built".split()
    assert [name for name in STEPS if name in way] == way
