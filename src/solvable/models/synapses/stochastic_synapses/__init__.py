"""Stochastic binary synapses."""

from .model import StochasticSynapses as StochasticSynapses
