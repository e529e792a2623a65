"""Rough landscapes: descent and sampling among exponentially many minima, and how many minima there are."""
