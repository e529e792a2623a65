"""Flows: order-parameter equations, their integration with error control, and optimal control of their schedules."""
