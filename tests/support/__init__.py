"""What only tests share: stages, builders, servers beside them. The laboratory and the product never import it."""
