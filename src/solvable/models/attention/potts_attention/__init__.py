"""Factored attention on Potts data."""

from .model import PottsAttention as PottsAttention
