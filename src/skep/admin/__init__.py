"""`/admin/v1`: what is ours and not Nova's. Cells, hosts, explanations, the audit; beside it health and metrics."""
