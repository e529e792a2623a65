"""A spike that only higher cumulants show."""

from .model import SpikedCumulant as SpikedCumulant
