"""Filters, one to a file: `(hosts, request) -> mask`."""
