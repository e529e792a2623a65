"""Exceptions with one-sentence messages for the user. Imports nothing."""


class SolvableError(Exception):
    """Base class of all errors meant for the user; the message is one clear sentence.

    The command line prints it without a traceback and exits with code 2.
    """


class InvalidValue(SolvableError, ValueError):
    """A field was given a value outside its declared range, or of the wrong kind or shape."""


class UnknownName(SolvableError, LookupError):
    """A model, field, observable or figure that does not exist; the message names the nearest ones."""


MOST_NAMES = 30  # names listed in one message


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """The end of an error message about a misspelt name: the nearest known name, or the list of known names.

    >>> nearest("percetron", ["perceptron", "soft-committee"])
    "did you mean 'perceptron'?"
    """
    import difflib

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    names = sorted(known)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return "known: " + ", ".join(names[:MOST_NAMES]) + more + "."
