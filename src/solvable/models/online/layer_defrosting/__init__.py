"""Transfer by frozen and defrosted layers."""

from .model import LayerDefrosting as LayerDefrosting
