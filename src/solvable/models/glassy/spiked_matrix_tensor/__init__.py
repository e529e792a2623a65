"""A spike seen through a matrix and a tensor."""

from .model import SpikedMatrixTensor as SpikedMatrixTensor
