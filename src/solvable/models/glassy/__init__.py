"""Descent and sampling in rough landscapes: two-time dynamics, and counts of minima."""
"""Rough landscapes: descents that are trapped, and what sets them free."""
