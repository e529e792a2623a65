"""Random matrices: deterministic equivalents, effective ridges, spectra and spikes."""
