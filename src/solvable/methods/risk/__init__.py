"""Risk minimisation: losses, proximal maps, Gaussian equivalents, models composed of parts, and minimisers at finite size."""
