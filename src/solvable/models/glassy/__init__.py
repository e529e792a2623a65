"""Rough landscapes: descents that are trapped, and what sets them free."""
