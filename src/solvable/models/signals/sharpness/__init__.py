"""The top eigenvalue of the Hessian during training, across widths."""

from .model import Sharpness as Sharpness
