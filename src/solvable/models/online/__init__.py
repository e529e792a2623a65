"""Online learning from a stream of samples: order-parameter flows."""
