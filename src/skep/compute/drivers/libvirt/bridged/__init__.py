"""Networks on hosts: makes a host so that its guests have what `HostNetworks` says (docs/libvirt-networks.md).

`plan` turns what is wanted into data (`state`), with the text of nft (`filters`, `routing`) and of dnsmasq (`leases`);
none of that touches the host. `host` compares the data with what is there and changes the difference, by the programs
of `programs`. What Skep makes is known by its name (`names`), so that a host that was killed at any point goes on.
"""
