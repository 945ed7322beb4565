"""Screens in the XML of guests: made with them, or when they are next started."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from skep.compute.drivers.libvirt.screens import MODEL, NONE, add_screen, with_screen


def domain(model: str, *, screen: bool) -> str:
    root = ET.Element("domain")
    devices = ET.SubElement(root, "devices")
    if model:
        ET.SubElement(ET.SubElement(devices, "video"), "model", type=model)
    if screen:
        add_screen(devices)
    return ET.tostring(root, encoding="unicode")


def shape(text: str) -> tuple[str | None, bool]:
    """Return the model of the video device in an XML, and whether there is a screen."""
    devices = ET.fromstring(text).find("devices")
    assert devices is not None
    model, graphics = devices.find("video/model"), devices.findall("graphics")
    assert [one.attrib for one in graphics] == [{"type": "vnc"}] * len(graphics)
    assert all(one.find("listen[@type='none']") is not None for one in graphics), "QEMU listens nowhere"
    return (None if model is None else model.get("type")), bool(graphics)


@pytest.mark.parametrize(("model", "made"), [("", (MODEL, True)), ("virtio", ("virtio", True)), (NONE, (NONE, False))])
def test_a_screen_is_as_the_hardware_says(model: str, made: tuple[str, bool]) -> None:
    assert shape(domain(model, screen=True)) == made


@pytest.mark.parametrize(
    ("model", "screen", "wanted", "then"),
    [
        ("virtio", True, True, None),
        ("virtio", True, False, ("virtio", False)),
        ("", False, True, (MODEL, True)),
        ("virtio", False, True, ("virtio", True)),
        ("", False, False, None),
        (NONE, False, True, None),
    ],
)
def test_a_guest_follows_its_host_but_for_one_whose_image_wants_none(
    model: str, screen: bool, wanted: bool, then: tuple[str, bool] | None
) -> None:
    changed = with_screen(domain(model, screen=screen), wanted=wanted)
    assert (None if changed is None else shape(changed)) == then
