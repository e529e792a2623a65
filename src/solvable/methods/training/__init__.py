"""Training: loops, schedules and the networks that are trained."""
