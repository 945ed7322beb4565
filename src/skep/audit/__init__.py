"""The audit: whether what databases, host states and agents say of servers agrees, and which of it can be mended.

Below the services: the super conductor looks by itself, the admin API when it is asked, both with this code.
"""
