"""Placement said a second time, host by host and without columns: what the engine must agree with.

Written to be read, not to be quick. `cloud.py` keeps plain structs under the same calls as the engine's table and
indexes, `filters.py` and `weighers.py` judge one host at a time, `deciding.py` sorts what is left.
"""
