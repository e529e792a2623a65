"""What transformers learn from masked language modelling."""
