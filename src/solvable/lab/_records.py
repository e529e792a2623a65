"""Text records of the store: canonical JSON, documents, and the manifests that list the committed blocks."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from . import _files as files
from ._files import StoreError

BLOCK_ID = re.compile(r"[0-9a-f]{64}")
MANIFEST_NAME = re.compile(r"([0-9a-f]{32})\.jsonl")
HEX_FLOAT = re.compile(r"'*-?(0x[01]\.[0-9a-f]+p[+-][0-9]+|inf|nan)")
LONGEST_LINE = 1 << 16
MOST_GARBLED = 1 << 24  # bytes in a row without a valid line, after which a manifest is not read further
LARGEST_READABLE = 1 << 14
SEALED = re.compile(rb'\{"sha256":"[0-9a-f]{64}","document":')
NOT_JSON = (ValueError, KeyError, TypeError, RecursionError)  # raised when reading untrusted JSON


@dataclass(frozen=True, slots=True)
class Entry:
    """One committed block, as recorded in its writer's manifest."""

    block: str
    sha256: str
    bytes: int
    time: str
    meta: dict[str, Any]
    writer: str


def canonical(obj: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, floats bit-exact as `float.hex` strings.

    Different objects have different texts: 1, 1.0 and True differ, 0.0 and -0.0 differ, and a string that looks like a
    float is quoted once more. Tuples are lists and NumPy scalars are Python scalars.

    >>> print(canonical({"penalty": 0.5, "arms": ["inf", -0.0, 2]}))
    {"arms":["'inf","-0x0.0p+0",2],"penalty":"0x1.0000000000000p-1"}
    """
    return json.dumps(plain(obj, exact=True), sort_keys=True, separators=(",", ":"))


def block_id(specification: Mapping[str, Any]) -> str:
    """The name of a block: SHA-256 of the canonical JSON of its specification.

    >>> block_id({"model": "ridge", "penalty": 0.1})[:16]
    '88d185793b9df263'
    >>> block_id({"penalty": 0.1, "model": "ridge"}) == block_id({"model": "ridge", "penalty": 0.1})
    True
    """
    return sha256(canonical(specification).encode())


def plain(obj: Any, exact: bool = False, where: str = "$") -> Any:
    """`obj` in JSON types; raises StoreError for anything JSON would alter. `exact` writes floats as hex strings."""
    if isinstance(obj, np.generic):
        obj = obj.item()
    if obj is None or isinstance(obj, bool | int):
        return obj
    if isinstance(obj, float):
        return float(obj).hex() if exact else float(obj)
    if isinstance(obj, str):
        return "'" + obj if exact and HEX_FLOAT.fullmatch(obj) else str(obj)
    try:
        if isinstance(obj, list | tuple):
            return [plain(item, exact, f"{where}[{index}]") for index, item in enumerate(obj)]
        if isinstance(obj, Mapping) and all(isinstance(key, str) for key in obj):
            return {str(key): plain(value, exact, f"{where}.{key}") for key, value in obj.items()}
    except RecursionError:
        raise StoreError("JSON cannot hold an object that is nested too deeply or contains itself.") from None
    what = "a mapping whose keys are not all strings" if isinstance(obj, Mapping) else f"a {type(obj).__name__}"
    raise StoreError(f"JSON cannot hold {what} (at {where}).")


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def document_file(document: Any) -> bytes:
    """The file of a document with its hash, which detects flipped bits; large documents are hashed by their bytes."""
    text = json.dumps(plain(document), separators=(",", ":")).encode()
    return _readable(document) if len(text) <= LARGEST_READABLE else _sealed(text)


def document_in(data: bytes) -> Any:
    """The document in a file; raises ValueError if any bit has changed."""
    if found := SEALED.match(data):
        text = data[found.end() : -2]
        if _sealed(text) == data:
            return json.loads(text)
    elif _readable(document := json.loads(data)["document"]) == data:
        return document
    raise ValueError("damaged")


def _readable(document: Any) -> bytes:
    content = {"document": plain(document), "sha256": sha256(canonical(document).encode())}
    return json.dumps(content, indent=1).encode() + b"\n"


def _sealed(text: bytes) -> bytes:
    return b'{"sha256":"' + sha256(text).encode() + b'","document":' + text + b"}\n"


def manifest_line(record: dict[str, Any]) -> bytes:
    """One line of JSON with a checksum of its bytes."""
    body = json.dumps(record, separators=(",", ":")).encode()
    if len(body) > LONGEST_LINE - 100:
        raise StoreError(
            f"The meta of block {str(record.get('block'))[:12]}… takes {len(body)} bytes, but the limit is 65000."
        )
    return body[:-1] + _seal(body) + b"\n"


def _seal(body: bytes) -> bytes:
    return b',"check":"' + sha256(body)[:16].encode() + b'"}'


_SEAL_LENGTH = len(_seal(b""))


class Ledger:
    """The content of all manifests; each refresh reads only the lines appended since the last one."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}
        self.failures: dict[str, list[tuple[str, str, str]]] = {}  # (time, writer, error)
        self.documents: dict[str, set[str]] = {}  # hashes of the files of every document, by name
        self._understood: dict[str, int] = {}  # per writer: end of the last valid line

    def refresh(self, folder: str) -> None:
        """Read the new lines of the manifests in `folder`."""
        sizes = {}
        with os.scandir(folder) as found:
            for item in found:
                if (name := MANIFEST_NAME.fullmatch(item.name)) and item.is_file(follow_symlinks=False):
                    sizes[name[1]] = item.stat(follow_symlinks=False).st_size
        if any(sizes.get(writer, 0) < end for writer, end in self._understood.items()):
            self.__init__()  # a manifest shrank or vanished, so its old lines no longer count
        for writer, size in sizes.items():
            if size > self._understood.get(writer, 0):
                self.scan(os.path.join(folder, f"{writer}.jsonl"), writer)

    def scan(self, path: str, writer: str) -> tuple[int, bool]:
        """Read the new lines of one manifest; return the number of garbled lines and whether the last one is torn.

        Bad lines at the end are read again next time, because a network file system may not have finished the write.
        """
        position, garbled, rest = self._understood.get(writer, 0), 0, b""
        while piece := files.read(path, start=position + len(rest), most=1 << 22):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                position += len(line) + 1
                if self._take_in(line, writer):
                    self._understood[writer] = position
                else:
                    garbled += 1
            if len(rest) > LONGEST_LINE:
                position, garbled, rest = position + len(rest), garbled + 1, b""
            if position - self._understood.get(writer, 0) > MOST_GARBLED:
                return garbled + 1, True  # a writer adds nothing after a torn line
        return garbled, bool(rest)

    def _take_in(self, line: bytes, writer: str) -> bool:
        """Record a line if it is complete and valid; return whether it is."""
        body = line[:-_SEAL_LENGTH] + b"}"
        if line[-_SEAL_LENGTH:] != _seal(body):
            return False
        try:
            record = json.loads(body)
        except NOT_JSON:
            return False
        match record:
            case {"block": str(block)} if not BLOCK_ID.fullmatch(block):
                return False
            case {"kind": "document", "document": str(name), "sha256": str(sha)}:
                self.documents.setdefault(name, set()).add(sha)
            case {"block": str(block), "kind": "failed", "error": str(error), "time": str(when)}:
                self.failures.setdefault(block, []).append((when, writer, error))
            case {"block": str(block), "sha256": str(sha), "bytes": int(size), "time": str(when), "meta": dict(meta)}:
                self.entries.setdefault(block, []).append(Entry(block, sha, size, when, meta, writer))
            case _:
                return False
        return True
