"""Pruned networks under label noise."""

from .model import PrunedNetworks as PrunedNetworks
