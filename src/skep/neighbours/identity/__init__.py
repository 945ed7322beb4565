"""Who is asking: tokens and projects."""
