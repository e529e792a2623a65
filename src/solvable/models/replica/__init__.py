"""Replica theory: minimisers of the empirical risk and Bayes-optimal learners of a finite batch."""
