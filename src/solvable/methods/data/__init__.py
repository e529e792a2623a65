"""Data sets that come with installed packages."""
