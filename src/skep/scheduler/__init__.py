"""Placement: which host of which cell each server goes to. Only `service.py` and its stories are asynchronous."""
