"""Files given by the reader: every claimed size is checked before anything is allocated, and nothing is waited for."""

from __future__ import annotations

import io
import math
import os
import stat

import numpy as np
from numpy.lib import format as npy

from ..errors import InvalidValue


def regular_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes; raises `InvalidValue`, or `OSError` if it cannot be opened."""
    # Non-blocking, because opening a pipe would otherwise wait forever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidValue(f"{os.fspath(path)} is not a file.")
        if found.st_size > most:
            raise InvalidValue(f"{os.fspath(path)} is larger than {most} bytes.")
        return file.read(most)


def array_in(data: bytes) -> np.ndarray:
    """The array in the bytes of an npy file; raises `ValueError` if its header claims anything but the bytes that follow.

    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(3))
    >>> array_in(file.getvalue()).tolist()
    [0, 1, 2]
    """
    file = io.BytesIO(data)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(file))
    if read is None:
        raise ValueError("unknown version of the npy format")
    shape, fortran_order, dtype = read(file)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("it does not hold plain numbers")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("its header claims another number of bytes")
    return np.ndarray(shape, dtype, data, file.tell(), order="F" if fortran_order else "C").copy()
