"""Cinder, or any other volume service that speaks its v3 API, behind Skep's ports towards volumes."""
