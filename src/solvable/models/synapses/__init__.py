"""Synapses of low precision: binary, stochastic and few-bit weights."""
