"""One non-Gaussian direction, found by independent component analysis."""

from .model import ICA as ICA
