"""Many-body interactions and the order that a learner reaches."""

from .model import ManyBodyBias as ManyBodyBias
