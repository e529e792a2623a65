"""Networks that learn interactions of short sequences, where every loss is exact."""

from .model import ShortSequences as ShortSequences
