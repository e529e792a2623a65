"""Binary networks trained on digits."""

from .model import BinaryDigits as BinaryDigits
