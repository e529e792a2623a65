"""Run the command `solvable` as `python -m solvable`, with the current Python."""

from .cli import main

if __name__ == "__main__":
    main()
