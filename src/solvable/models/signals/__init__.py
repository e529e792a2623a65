"""Signals in deep networks: what depth, width and initialisation do to what a network carries."""
