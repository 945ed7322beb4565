"""What every field of the API is: one module per noun, one description per field."""
