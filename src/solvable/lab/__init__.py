"""Running and storing studies."""
