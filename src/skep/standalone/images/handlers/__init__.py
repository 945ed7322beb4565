"""What the image store answers, one file per noun."""
