"""Learning from a finite batch: replica theory of empirical-risk minimisers."""
