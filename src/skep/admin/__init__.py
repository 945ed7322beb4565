"""`/admin/v1`: Skep's own API. Cells, hosts, explanations, the audit; also health and metrics."""
