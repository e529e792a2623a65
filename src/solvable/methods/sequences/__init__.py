"""Sequences: Potts models, their sampling, their inference from data, and many-body interactions."""
