"""What the API does for each route: one module per noun."""
