"""Carries host states between schedulers, through a backend that may be lost: a cache, never the truth."""
