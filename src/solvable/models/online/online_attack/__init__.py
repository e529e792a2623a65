"""Label attacks on an online learner."""

from .model import OnlineAttack as OnlineAttack
