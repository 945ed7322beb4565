"""Whole clouds that die beside a network service and a volume service that fail."""
