"""A cell's database: its instances, their attempts and actions, its agents. cell0 has the same tables."""
