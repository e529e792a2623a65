"""Tools for your own data."""

from .forecast import Forecast as Forecast
from .forecast import forecast as forecast
from .predict import Prediction as Prediction
from .predict import predict as predict
