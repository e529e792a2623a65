"""Sequences: Potts models, their sampling, their inference from data, and interactions of many bodies."""
