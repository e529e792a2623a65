"""Run commands in this process, for the tests of the command line."""

import pytest

from solvable.cli.app import main


def answer(capsys, *words):
    """Exit code, standard output, standard error of one command in this process."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err
