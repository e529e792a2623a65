"""Flows: order-parameter equations, their integration with error control, and the optimal control of what they depend on."""
