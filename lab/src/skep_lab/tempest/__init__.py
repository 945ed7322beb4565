"""OpenStack's own test suite against a cloud of this clone: `make tempest BARE=1`, or `OWN=1`.

The suite runs in an environment of its own (`scripts/bootstrap tempest`), the cloud beside a real Keystone and a real
Glance, or with services of its own. What `inside/` has is run by the suite's interpreter.
"""
