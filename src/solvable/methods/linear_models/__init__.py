"""Generalised linear models put together from parts: priors, channels, losses, penalties, and their replica theory."""
