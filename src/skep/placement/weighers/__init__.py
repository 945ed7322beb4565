"""Weighers, one to a file: `(hosts, request) -> scores`; more is better."""
