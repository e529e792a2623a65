"""Learning while the data stream: order-parameter flows."""
