"""Ports that Neutron bound to a host: plugged as their binding says (docs/libvirt-networks.md, "Ports of Neutron").

`kinds` reads bindings, row by row; nothing there touches the host. `plugging` does what each kind needs on it, by `ip`
and, for an Open vSwitch, by the library os-vif (`switches`). `ports` keeps in a file which ports an attempt has.
"""
