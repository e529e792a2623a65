"""Data: sets that come with installed packages, and rows cut into parts of equal length."""
