"""Placement without a cloud: traces and recorded decisions, decided by the scheduler's own code."""
