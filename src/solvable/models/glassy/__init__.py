"""Rough landscapes: descent and sampling among exponentially many minima, and how to count these."""
