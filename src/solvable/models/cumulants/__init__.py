"""What networks learn from higher-order statistics."""
