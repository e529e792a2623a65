"""Online learning: order-parameter flows of learners that see each sample once."""
