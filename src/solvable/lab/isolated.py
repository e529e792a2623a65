"""`python -m solvable.lab.isolated RUN STUDY BLOCK`: compute a block that killed a worker in a separate process."""

from __future__ import annotations

import os
import sys
import threading
import time


def _exit_with_parent() -> None:
    """End this process when the worker that waits for it is gone, so that another worker can take the block."""
    from .launch import parent_lives

    while parent_lives():
        time.sleep(0.5)
    os._exit(1)


def main() -> int:
    """Exit with code 0 if the block is committed, 3 if memory ran out, 1 otherwise."""
    from .jax_environment import configure

    configure()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    from .sweep import TOO_LARGE, compute_one
    from .worker import TooLarge

    try:
        compute_one(*sys.argv[1:4])
    except TooLarge as problem:
        print(problem, file=sys.stderr)
        return TOO_LARGE
    except Exception as problem:
        print(f"{type(problem).__name__}: {problem}".replace("\n", " "), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
