"""Where studies run and rest."""
