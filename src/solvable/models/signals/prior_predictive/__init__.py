"""Outputs of random deep networks: what a prior on weights says about functions."""

from .model import PriorPredictive as PriorPredictive
