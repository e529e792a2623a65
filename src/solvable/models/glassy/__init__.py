"""Rough landscapes: descents and samplers that are trapped, what sets them free, and counts of minima."""
