"""Transformers trained on digits, over depth and query/key strength."""

from .model import SignalDigits as SignalDigits
