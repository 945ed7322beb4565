"""Measurements that are run by hand; each prints JSON."""
