"""What practitioners bring their own data to."""

from .forecast import Forecast as Forecast
from .forecast import forecast as forecast
