"""File-system operations of the store: durable writes, defensive reads, and packing of blocks.

Every system call that changes the disk is in this file, so that tests can make each of them fail in turn.
"""

import errno
import hashlib
import io
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
from numpy.lib import format as npy

from solvable.errors import SolvableError

TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}")
ARRAY_NAME = re.compile(r"[A-Za-z0-9_]+([./-][A-Za-z0-9_]+)*")
PLAIN_DTYPES = "?bhilqBHILQefdFDSUmM"  # no objects, structures, padded types or types of other packages
NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}  # file systems or parent folders that do not support it
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


class StoreError(SolvableError):
    """A store cannot be read or written; the message is one sentence."""


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn an OSError into a StoreError such as `Could not <doing>: No space left on device.`"""
    try:
        yield
    except OSError as error:
        raise StoreError(f"Could not {doing}: {error.strerror or error}.") from error


def sync_folder(folder: str) -> None:
    """Make the names inside `folder` durable (safe against a power cut)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise


def make_folder(folder: str) -> None:
    """Create `folder` and its parents durably; other writers may create them at the same time."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        make_folder(parent)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
    sync_folder(parent)


def write_atomically(path: str, data: bytes | memoryview, *, once: bool = False) -> None:
    """Write `data` to `path` atomically; with `once`, raise FileExistsError instead of replacing an existing file."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".tmp-{os.urandom(16).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not (once and _link(temporary, path)):
            os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def _link(temporary: str, path: str) -> bool:
    """Link the file to its name, without replacing an existing file; False if links are not supported."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        return False
    os.unlink(temporary)
    return True


def append(path: str, line: bytes) -> None:
    """Append `line` durably with a single write; a short write raises an error and leaves a torn line."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: str) -> None:
    """Make another writer's file and its name durable before a manifest refers to them."""
    with _open_regular(path) as file:
        os.fsync(file.fileno())
    sync_folder(os.path.dirname(path))


def mark(path: str, data: bytes) -> bool:
    """Create a small file; False if the name is taken. It need not survive a crash, so nothing is synced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    return True


def touch(path: str) -> None:
    """Set a file's time to now, by the clock of its file system."""
    os.utime(path, follow_symlinks=False)


def marked(path: str, most: int = 4096) -> tuple[bytes, float]:
    """Content and modification time of a small file; it is opened so that network file systems ask the server."""
    with _open_regular(path) as file:
        return file.read(most), os.fstat(file.fileno()).st_mtime


def discard(path: str) -> bool:
    """Remove a file; another process may remove it first."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove(path: str, *, unchanged_since: float) -> bool:
    """Remove a file last written before the time `unchanged_since`; another process may remove it first."""
    try:
        if os.lstat(path).st_mtime > unchanged_since:
            return False
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _open_regular(path: str) -> io.BufferedReader:
    # Non-blocking, because opening a pipe would otherwise wait forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path} is not a regular file.")
    return open(descriptor, "rb")


def read(path: str, *, start: int = 0, most: int) -> bytes:
    """At most `most` bytes of a regular file, from `start`; never allocates more than the file's size."""
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(start)
        return file.read(max(0, min(size - start, most)))


def size_of(path: str) -> int:
    """The length of a regular file."""
    with _open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def digest(path: str) -> str | None:
    """SHA-256 of a regular file, computed in constant memory; None if the file does not exist."""
    try:
        with _open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def pack(arrays: Mapping[str, np.ndarray]) -> memoryview:
    """The bytes of an uncompressed npz file; equal arrays give equal bytes, independent of order, time and machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays, key=str):
            if not (isinstance(name, str) and ARRAY_NAME.fullmatch(name) and len(name) <= 200):
                raise StoreError(f"An array cannot be called {name!r}: use letters, digits and _, joined by . / or -.")
            array = np.asarray(arrays[name], order="C")
            if not _is_plain(array.dtype):
                raise StoreError(f"Array {name!r} has dtype {array.dtype}, but a block holds only numbers and strings.")
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system, member.external_attr = 3, 0o644 << 16  # the defaults depend on the machine
            with archive.open(member, "w", force_zip64=True) as file:
                npy.write_array(file, array, version=(1, 0), allow_pickle=False)
    return buffer.getbuffer()


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of a possibly hostile npz file; every claimed size is checked against the actual bytes first.

    Raises ValueError with a short reason for any invalid bytes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("it is compressed")
            if sum(member.file_size for member in members) > len(data):
                raise ValueError("its members claim more bytes than the file has")
            if len(set(names)) != len(names) or not all(map(ARRAY_NAME.fullmatch, names)):
                raise ValueError("its arrays have impossible names")
            return {name: _unpack_array(archive.read(member)) for name, member in zip(names, members, strict=True)}
    except Exception as error:  # hostile bytes can make the parsers raise anything
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(words[:120]) from error


def _unpack_array(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("unknown version of the npy format")
    shape, fortran_order, dtype = npy.read_array_header_1_0(file)
    if not _is_plain(dtype):
        raise ValueError(f"dtype {dtype} is not allowed")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"shape {shape} does not match {len(data) - file.tell()} bytes")
    return np.ndarray(shape, dtype, data, file.tell(), order="F" if fortran_order else "C").copy()


def _is_plain(dtype: np.dtype) -> bool:
    return dtype.char in PLAIN_DTYPES and dtype.itemsize > 0 and dtype.isbuiltin != 2
