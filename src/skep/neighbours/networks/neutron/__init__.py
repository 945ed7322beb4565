"""Neutron, or any other network service that speaks its v2.0 API, behind Skep's ports towards networks."""
