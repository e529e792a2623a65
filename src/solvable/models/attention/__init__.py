"""Attention: what transformers learn from masked language modelling."""
