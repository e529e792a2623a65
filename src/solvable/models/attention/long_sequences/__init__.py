"""Networks that learn interactions of long sequences, held against fits and clones of every order."""

from .model import LongSequences as LongSequences
