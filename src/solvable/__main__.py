"""`python -m solvable` is the command `solvable`, of this very Python."""

from .cli import main

if __name__ == "__main__":
    main()
