"""A volume service in memory that speaks Cinder's v3 dialect, as far as Skep and its tests use it.

It keeps Cinder's rules: whose a volume is, which status follows which, which attachments are refused. It stores no
data, and what it knows ends with it.
"""
