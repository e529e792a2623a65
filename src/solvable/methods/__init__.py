"""Mathematics that models share, and that knows no model."""
