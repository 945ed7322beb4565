"""What the identity service answers, one file per noun."""
