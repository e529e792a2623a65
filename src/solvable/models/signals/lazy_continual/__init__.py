"""Two tasks in succession, from lazy to rich training at any width."""

from .model import LazyContinual as LazyContinual
