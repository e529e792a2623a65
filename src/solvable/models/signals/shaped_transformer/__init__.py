"""The shaped transformer: covariance of tokens when depth and width grow together."""

from .model import ShapedTransformer as ShapedTransformer
