"""A small network service for a cloud without Neutron, in the dialect of Neutron's API v2.0."""
