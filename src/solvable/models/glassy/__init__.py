"""Descent and sampling in rough landscapes: two-time dynamics, and counts of minima."""
