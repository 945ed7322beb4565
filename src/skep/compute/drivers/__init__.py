"""Drivers of hypervisors."""
