"""Networks that learn interactions of long sequences, compared with fits and clones of every order."""

from .model import LongSequences as LongSequences
