"""What practitioners bring their own data to."""
