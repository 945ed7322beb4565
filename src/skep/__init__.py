"""Skep: a compute control plane that speaks Nova's API."""
