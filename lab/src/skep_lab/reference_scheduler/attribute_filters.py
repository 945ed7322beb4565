"""Filters that ask for attributes of the host: what it told of its hardware, and how busy it is."""

from __future__ import annotations

import json
import operator
from ipaddress import ip_address, ip_network
from typing import Any

from skep.domain.guest_keys import asked_of_guest
from skep.domain.guest_kinds import canonical_architecture
from skep.domain.versions import satisfies
from skep.placement.filters.extra_spec_values import matches
from skep_lab.reference_scheduler.attributes import CHANGING, attribute, guest_kinds
from skep_lab.reference_scheduler.cloud import ReferenceHost
from skep_lab.reference_scheduler.question import Question, Rule

_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_HYPERVISORS = {"xapi": "xen"}
_MODES = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}


def _has_capabilities(host: ReferenceHost, asked: Question, *, changing: bool) -> bool:
    """Tell whether the host satisfies what is under `capabilities:`, and of what has no colon that which it knows."""
    for key, wanted in asked.request.spec.flavor.extra_specs.items():
        if key == "group_policy":
            continue
        scoped = key.startswith("capabilities:")
        path = key.split(":")[1:] if scoped else [key]
        if (not scoped and ":" in key) or (path[0] in CHANGING) != changing:
            continue
        value = attribute(host, path)
        if value is None:
            if scoped:
                return False
        elif not matches(value, wanted):
            return False
    return True


def capabilities(host: ReferenceHost, asked: Question) -> bool:
    """What stays as it is while servers come and go."""
    return _has_capabilities(host, asked, changing=False)


def capabilities_of_amounts(host: ReferenceHost, asked: Question) -> bool:
    """What does not."""
    return _has_capabilities(host, asked, changing=True)


def image_properties(host: ReferenceHost, asked: Question) -> bool:
    """One kind of guests with all that the image asks for; a version alone asks for nothing."""
    image = asked.request.spec.image
    properties = image.properties if image is not None else {}

    def first(*names: str) -> str:
        return next((properties[name] for name in names if properties.get(name)), "")

    default = asked.options.image_properties_default_architecture
    architecture = canonical_architecture(first("hw_architecture", "architecture") or default) or ""
    hypervisor = first("img_hv_type", "hypervisor_type").lower()
    mode = first("hw_vm_mode", "vm_mode").lower()
    wanted = (architecture, _HYPERVISORS.get(hypervisor, hypervisor), _MODES.get(mode, mode))
    if not any(wanted):
        return True
    usage = host.usage
    if usage is None:
        return False
    kinds = guest_kinds(usage)
    if not any(all(one in ("", has) for one, has in zip(wanted, kind, strict=True)) for kind in kinds):
        return False
    conditions = first("img_hv_requested_version", "hypervisor_version_requires")
    return not conditions or not usage.hypervisor_version or satisfies(usage.hypervisor_version, conditions)


def near_address(host: ReferenceHost, asked: Question) -> bool:
    """The host's own address is in the network around that of the hint."""
    hints = asked.request.spec.scheduler_hints
    if "build_near_host_ip" not in hints:
        return True
    network = ip_network(f"{hints['build_near_host_ip']}{hints.get('cidr', '/24')}", strict=False)
    try:
        return host.usage is not None and ip_address(host.usage.host_ip) in network
    except ValueError:
        return False


def query(host: ReferenceHost, asked: Question) -> bool:
    """The host satisfies the condition of the hint."""
    hint = asked.request.spec.scheduler_hints.get("query")
    return hint is None or _holds(host, json.loads(hint) if isinstance(hint, str) else hint)


def _holds(host: ReferenceHost, condition: Any) -> bool:
    if not condition:
        return True
    how, *rest = condition
    if how in ("and", "or", "not"):
        parts = [_holds(host, part) for part in rest]
        return any(parts) if how == "or" else all(parts) != (how == "not")
    first, *others = [_operand(host, one) for one in rest]
    if how == "in":
        return any(_compares("=", first, other) for other in others)
    return all(_compares(how, first, other) for other in others)


def _operand(host: ReferenceHost, written: Any) -> Any:
    is_name = isinstance(written, str) and written.startswith("$")
    return attribute(host, written[1:].split(".")) if is_name else written


def _compares(how: str, left: Any, right: Any) -> bool:
    """Compare two values; nothing compares with what is not there, or is of another kind."""
    try:
        return left is not None and right is not None and bool(_COMPARE[how](left, right))
    except TypeError:
        return False


def metrics(host: ReferenceHost, asked: Question) -> bool:
    """The host reports all metrics that may count."""
    has = host.usage.metrics if host.usage is not None else {}
    return all(name in has for name in asked.options.metrics_weight_setting)


def refused_keys(host: ReferenceHost, asked: Question) -> bool:
    """The host refuses nothing that the flavor or the image says of the guest."""
    spec = asked.request.spec
    told = host.usage.refused_keys if host.usage is not None else None
    properties = spec.image.properties if spec.image is not None else {}
    of_guest = asked_of_guest(spec.flavor.extra_specs, properties)
    return told is None or of_guest is None or not list(told.of(of_guest))


RULES: dict[str, Rule] = {
    "ComputeCapabilitiesFilter": capabilities,
    "ComputeCapabilitiesOfAmountsFilter": capabilities_of_amounts,
    "ImagePropertiesFilter": image_properties,
    "SimpleCIDRAffinityFilter": near_address,
    "JsonFilter": query,
    "MetricsFilter": metrics,
    "RefusedKeysFilter": refused_keys,
}
