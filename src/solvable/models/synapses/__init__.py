"""Discrete synapses: binary, stochastic and few-bit weights."""
