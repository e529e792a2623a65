"""What a model declares, how it is compiled and described. Authors import these names from `solvable`."""
