"""Aligned sequences: alphabets, FASTA files, and weights that count similar sequences once. Imports no JAX.

Errors in a file raise `InvalidValue` with one sentence that names the line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ..errors import InvalidValue

ALPHABETS = {"protein": "ACDEFGHIKLMNPQRSTVWY-", "rna": "ACGU-", "dna": "ACGT-"}
READ_AS = {"rna": {"T": "U"}, "dna": {"U": "T"}}
LARGEST_FILE = 4 * 1024**3
Unknown = Literal["refuse", "gap"]
Inserts = Literal["keep", "drop"]


class Alphabet(NamedTuple):
    """The letters of a sequence in the order of their colours 0, 1, …; `name` is empty for custom alphabets."""

    name: str
    letters: str

    @property
    def gap(self) -> int | None:
        """The colour of the gap, if there is one."""
        found = self.letters.find("-")
        return None if found < 0 else found


def alphabet_named(given: str | Alphabet) -> Alphabet:
    """Return `protein`, `rna`, `dna` (each with the gap as last letter), or an alphabet of given letters ("HP", "01-").

    >>> alphabet_named("rna"), alphabet_named("HP").gap
    (Alphabet(name='rna', letters='ACGU-'), None)
    """
    if isinstance(given, Alphabet):
        return given
    if isinstance(given, str) and given.lower() in ALPHABETS:
        return Alphabet(given.lower(), ALPHABETS[given.lower()])
    fine = isinstance(given, str) and 2 <= len(given) <= 94 and len(set(given)) == len(given)
    if not fine or any(not "!" <= letter <= "~" or letter in ">;" for letter in given):
        raise InvalidValue(
            f"alphabet = {given!r} is not one of {', '.join(ALPHABETS)}, nor 2 to 94 different printable letters."
        )
    return Alphabet("", given)


class Alignment(NamedTuple):
    """Sequences as colours, with their names and the lines on which their records begin."""

    sequences: np.ndarray  # (sequences, sites), int8
    names: list[str]
    lines: list[int]


def read_fasta(
    path: str | os.PathLike[str],
    alphabet: str | Alphabet = "protein",
    *,
    unknown: Unknown = "refuse",
    inserts: Inserts = "keep",
    least: int = 1,
) -> Alignment:
    """Read the aligned sequences of a FASTA file; records may span lines.

    With `inserts="keep"`, `.` is read as the gap `-` and lower case as upper case; with `inserts="drop"`, lower case and
    `.` are insert columns, as in A2M and A3M files, and are left out. Letters outside the alphabet (B, X, Z, …) raise
    `InvalidValue`, or are read as gaps with `unknown="gap"`. RNA reads T as U, DNA reads U as T. The file must have at
    least `least` sequences.
    """
    letters = alphabet_named(alphabet)
    name = str(path)
    if unknown == "gap" and letters.gap is None:
        raise InvalidValue(f"unknown = 'gap' needs an alphabet with the gap '-', but {letters.letters!r} has none.")
    data = _bytes(name)
    table = _table(letters, unknown, inserts)
    rows, names, lines, parts = [], [], [], []
    for number, line in enumerate(data.splitlines(), start=1):
        if b"\0" in line:
            raise InvalidValue(f"{name}: line {number} contains a zero byte, so this is not a text file.")
        text = line.strip()
        if not text:
            continue
        if text.startswith(b">"):
            _close(name, rows, names, lines, parts)
            names.append(text[1:].strip().decode(errors="replace"))
            lines.append(number)
            continue
        if not names:
            start = text[:20].decode(errors="replace")
            raise InvalidValue(f"{name}: line {number} begins with {start!r}, but a FASTA file begins with a '>' line.")
        colours = table[np.frombuffer(text, np.uint8)]
        if np.any(colours == _UNKNOWN):
            where = int(np.argmax(colours == _UNKNOWN))
            raise InvalidValue(_about_letter(name, number, where, text, letters))
        parts.append(colours[colours != _LEFT_OUT])
    _close(name, rows, names, lines, parts)
    if not rows:
        raise InvalidValue(f"{name}: there are no sequences; the last line is line {data.count(bytes([10])) + 1}.")
    found = np.stack(rows)
    if found.shape[1] < 2:
        raise InvalidValue(
            f"{name}: the sequence of line {lines[0]} has {found.shape[1]} site, but at least 2 are needed."
        )
    if len(found) < least:
        raise InvalidValue(
            f"{name}: line {lines[-1]} is the start of the only sequence, but at least {least} are needed."
        )
    return Alignment(found, names, lines)


_UNKNOWN, _LEFT_OUT = -1, -2


def _bytes(name: str) -> bytes:
    try:
        if not os.path.isfile(name) and os.path.exists(name):
            raise InvalidValue(f"{name} is not a file.")
        if os.path.getsize(name) > LARGEST_FILE:
            raise InvalidValue(f"{name} is larger than {LARGEST_FILE} bytes.")
        data = Path(name).read_bytes()
    except OSError as problem:
        raise InvalidValue(f"{name} cannot be read: {problem.strerror}.") from None
    if not data.strip():
        raise InvalidValue(f"{name}: the file is empty from line 1 on.")
    if data[:2] == b"\x1f\x8b":
        raise InvalidValue(f"{name}: line 1 begins like a gzip file; decompress it first.")
    return data.removeprefix(b"\xef\xbb\xbf")


def _table(alphabet: Alphabet, unknown: Unknown, inserts: Inserts) -> np.ndarray:
    """The colour of every byte."""
    letters, gap = alphabet.letters, alphabet.gap
    table = np.full(256, _UNKNOWN, np.int8)
    if unknown == "gap" and gap is not None:
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ*?~":
            table[ord(letter)] = gap
    for letter, other in READ_AS.get(alphabet.name, {}).items():
        table[ord(letter)] = letters.index(other)
    for colour, letter in enumerate(letters):
        table[ord(letter)] = colour
    if gap is not None and "." not in letters:
        table[ord(".")] = gap
    for letter in "abcdefghijklmnopqrstuvwxyz":
        if letter not in letters:
            table[ord(letter)] = _LEFT_OUT if inserts == "drop" else table[ord(letter.upper())]
    if inserts == "drop":
        table[ord(".")] = _LEFT_OUT
    return table


def _close(name: str, rows: list, names: list[str], lines: list[int], parts: list[np.ndarray]) -> None:
    """End the current record, if any."""
    if not names or len(rows) == len(names):
        return
    row = np.concatenate(parts) if parts else np.zeros(0, np.int8)
    parts.clear()
    if not len(row):
        raise InvalidValue(f"{name}: the record {_short(names[-1])} of line {lines[-1]} has no sequence.")
    if rows and len(row) != len(rows[0]):
        raise InvalidValue(
            f"{name}: the sequence {_short(names[-1])} of line {lines[-1]} has {len(row)} sites, but that of line {lines[0]} "
            f"has {len(rows[0])}; sequences must be aligned."
        )
    rows.append(row)


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:39] + "…")


def _about_letter(name: str, line: int, where: int, text: bytes, alphabet: Alphabet) -> str:
    byte = text[where : where + 1]
    shown = repr(byte.decode("ascii", errors="backslashreplace"))
    known = f"the {alphabet.name} alphabet" if alphabet.name else "the alphabet"
    help = "; read such letters as gaps with --unknown gap" if alphabet.gap is not None and byte.isalpha() else ""
    return f"{name}: line {line} has {shown} at column {where + 1}, which is not in {known} {alphabet.letters!r}{help}."


def encoded(
    sequences: str | os.PathLike[str] | Sequence[str] | np.ndarray,
    alphabet: str | Alphabet = "protein",
    *,
    unknown: Unknown = "refuse",
    inserts: Inserts = "keep",
    least: int = 1,
) -> np.ndarray:
    """Colours (sequences, sites) from the path of a FASTA file, a list of strings, or an integer array of colours.

    >>> encoded(["AC-U", "ac.u"], "rna").tolist()
    [[0, 1, 4, 3], [0, 1, 4, 3]]
    """
    letters = alphabet_named(alphabet)
    if isinstance(sequences, (str, os.PathLike)):
        return read_fasta(sequences, letters, unknown=unknown, inserts=inserts, least=least).sequences
    if isinstance(sequences, Iterable) and not hasattr(sequences, "dtype"):
        sequences = list(sequences)
    if isinstance(sequences, list) and sequences and all(isinstance(s, str) for s in sequences):
        found = _from_strings(sequences, _table(letters, unknown, inserts), letters)
    else:
        found = np.asarray(sequences)
        if found.ndim != 2 or found.dtype.kind not in "iu" or not found.size:
            raise InvalidValue(
                "sequences must be the path of a FASTA file, a list of strings, or integers of shape (sequences, sites)."
            )
        if found.min() < 0 or found.max() >= len(letters.letters):
            raise InvalidValue(
                f"sequences contain {found.min()} to {found.max()}, but the alphabet {letters.letters!r} has the colours "
                f"0 to {len(letters.letters) - 1}."
            )
        found = found.astype(np.int8)
    if found.shape[1] < 2 or len(found) < least:
        raise InvalidValue(
            f"there are {len(found)} sequences of {found.shape[1]} sites; at least {least} of 2 sites are needed."
        )
    return found


def _from_strings(sequences: list[str], table: np.ndarray, alphabet: Alphabet) -> np.ndarray:
    rows = []
    for number, text in enumerate(sequences):
        colours = table[np.frombuffer(text.encode("ascii", errors="replace"), np.uint8)]
        if np.any(colours == _UNKNOWN):
            letter = text[int(np.argmax(colours == _UNKNOWN))]
            raise InvalidValue(f"sequence {number} has {letter!r}, which is not in the alphabet {alphabet.letters!r}.")
        rows.append(colours[colours != _LEFT_OUT])
        if len(rows[-1]) != len(rows[0]):
            raise InvalidValue(f"sequence {number} has {len(rows[-1])} sites, but sequence 0 has {len(rows[0])}.")
    return np.stack(rows)


def similarity_weights(sequences: np.ndarray, threshold: float = 0.8, block: int = 256) -> np.ndarray:
    """1 / (number of sequences whose fraction of equal sites is at least `threshold`, including itself).

    The sum is the effective number of sequences. The count is exact: sites are packed as bits, one plane per binary digit
    of the colours, and compared 64 at a time. Each pair is compared once, in blocks of `block` × `block`.

    >>> similarity_weights(np.asarray([[0, 1, 2, 3, 4], [0, 1, 2, 3, 0], [4, 4, 4, 4, 4]]), 0.8).tolist()
    [0.5, 0.5, 1.0]
    """
    if not 0 < threshold <= 1:
        raise InvalidValue(
            f"threshold = {threshold} is not in (0, 1]; it is the fraction of equal sites from which sequences count as similar."
        )
    number, sites = sequences.shape
    planes = max(1, int(sequences.max()).bit_length())
    words = -(-sites // 64)
    room = np.zeros((number, 64 * words), np.uint8)
    room[:, :sites] = sequences
    packed = np.stack(
        [np.packbits(room >> digit & 1, axis=1, bitorder="little").view(np.uint64) for digit in range(planes)]
    )
    most = sites - int(np.ceil(threshold * sites - 1e-9))  # sites that may differ
    similar = np.zeros(number, np.int64)
    for low in range(0, number, block):
        a = packed[:, low : low + block]
        for start in range(low, number, block):
            b = packed[:, start : start + block]
            different = np.zeros((a.shape[1], b.shape[1]), np.uint16)
            for word in range(words):
                bits = a[0, :, None, word] ^ b[0, None, :, word]
                for plane in range(1, planes):
                    bits |= a[plane, :, None, word] ^ b[plane, None, :, word]
                different += np.bitwise_count(bits)
            near = different <= most
            similar[low : low + block] += near.sum(axis=1)
            if start > low:
                similar[start : start + block] += near.sum(axis=0)
    return 1 / similar


def write_fasta(
    path: str | os.PathLike[str], sequences: np.ndarray, alphabet: str | Alphabet, names: Sequence[str]
) -> None:
    """Write sequences as a FASTA file, completely or not at all."""
    letters = np.frombuffer(alphabet_named(alphabet).letters.encode(), np.uint8)
    lines = []
    for name, row in zip(names, np.asarray(sequences), strict=True):
        lines.append(f">{name}\n{letters[row].tobytes().decode()}\n")
    write_whole(path, "".join(lines).encode())


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` atomically, through a temporary file in the same folder."""
    from ..lab._files import make_folder, write_atomically

    where = os.path.abspath(path)
    try:
        make_folder(os.path.dirname(where))
        write_atomically(where, data)
    except OSError as problem:
        raise InvalidValue(f"{str(path)!r} cannot be written: {problem.strerror}.") from None
