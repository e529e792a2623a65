"""Transformers whose hyperparameters follow width and depth."""

from .model import TransformerScaling as TransformerScaling
from .network import GPT as GPT
from .network import parametrise as parametrise
