"""The store of a run: a folder of blocks that survives kills, power cuts, full disks and concurrent writers.

    run.json                        the format, written once
    documents/<name>.json           small named documents, written once
    blocks/<2 hex>/<block id>.npz   arrays; the id is the hash of the block's specification
    archives/<sha256>.pack          many blocks in one file, written by `compact`
    manifests/<writer id>.jsonl     one append-only file per writer: commits, documents, failures
    claims/                         hints about active workers; correctness does not depend on them

A block is *done* when a manifest records it, not when its file exists. A commit writes a temporary file, fsyncs it, renames
it, fsyncs its folder, appends one checksummed line to this writer's own manifest, and fsyncs that. A writer killed at any
point leaves either the old or the new state, and at most leftovers (a temporary file, a block in no manifest, a torn last
line) that are ignored. No two writers append to the same file, so no file system needs locks.
Nothing in a store is executed or trusted: no pickle, no symbolic links, and every size is checked before it is used.
"""

import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from . import _archives as archives
from . import _files as files
from . import _records as records
from ._files import StoreError
from ._records import BLOCK_ID, Entry, block_id, canonical
from ._verify import Problem, problems_of, walk
from .memory import check_room

__all__ = ["DamagedBlock", "Entry", "Problem", "Store", "StoreError", "block_id", "canonical"]

KIND, VERSION = "solvable run", 1
RUN_FILE = json.dumps({"kind": KIND, "version": VERSION}).encode() + b"\n"
DOCUMENT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
LARGEST_BLOCK = 1 << 32
LARGEST_DOCUMENT = 1 << 26
LONGEST_ERROR = 4000

Path = str | os.PathLike[str]


class DamagedBlock(StoreError):
    """A block that is recorded in a manifest but missing or damaged on disk; committing it again repairs it."""

    def __init__(self, kind: str, sentence: str):
        super().__init__(sentence)
        self.kind = kind


class Store:
    """The folder of a run; any number of processes and machines may open it at once (one `Store` per thread).

    >>> import tempfile
    >>> store = Store.create(tempfile.mkdtemp())
    >>> block = block_id({"model": "ridge", "penalty": 0.1})
    >>> entry = store.commit(block, {"test_error": np.array([0.2, np.nan])}, {"seconds": 0.3})
    >>> block in store.done(), store.read(block)["test_error"], store.verify()
    (True, array([0.2, nan]), [])
    """

    def __init__(self, path: Path):
        self.path = _resolved(path)
        self._ledger = records.Ledger()
        self._writer = ("", 0)  # id and process; a new writer after a fork or a failed append
        self._archives = archives.Archives(os.path.join(self.path, "archives"))
        self._durable: set[str] = set()  # folders and manifests whose names this process has made durable
        if not os.path.isdir(self.path):
            raise StoreError(f"There is no run at {self.path}.")
        with files.explained(f"open the run at {self.path}"):
            try:
                header = json.loads(files.read(self._inside("run.json"), most=LARGEST_DOCUMENT))
                kind, version = header["kind"], header["version"]
            except FileNotFoundError:
                raise StoreError(f"{self.path} is not a run: it has no run.json.") from None
            except records.NOT_JSON:
                raise StoreError(f"{self.path} is not a run: its run.json is malformed.") from None
        if kind != KIND:
            raise StoreError(f"{self.path} is not a run: its run.json says {str(kind)[:80]!r}.")
        if version != VERSION:
            raise StoreError(f"{self.path} has run format {str(version)[:20]}, but only format {VERSION} is supported.")

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Open the run at `path`."""
        return cls(path)

    @classmethod
    def create(cls, path: Path) -> "Store":
        """Start a run in a new or empty folder."""
        return cls._make(path, may_exist=False)

    @classmethod
    def open_or_create(cls, path: Path) -> "Store":
        """Open the run at `path`, or start one in a new or empty folder; safe for concurrent processes."""
        return cls._make(path, may_exist=True)

    @classmethod
    def _make(cls, path: Path, may_exist: bool) -> "Store":
        root = _resolved(path)
        with files.explained(f"create a run in {root}"):
            if os.path.lexists(root) and not os.path.isdir(root):
                raise StoreError(f"{root} is a file, so no run can be created there.")
            files.make_folder(root)
            present = {name for name in os.listdir(root) if not files.TEMPORARY.fullmatch(name)}
            if present and "run.json" not in present:
                raise StoreError(f"{root} contains other files ({min(present)!r}): choose a new or empty folder.")
            try:
                if not present:
                    files.write_atomically(os.path.join(root, "run.json"), RUN_FILE, once=True)
                    may_exist = True  # this process created it
            except FileExistsError:
                pass  # another process was faster
        if not may_exist:
            raise StoreError(f"{root} already contains a run: open it, or choose another folder.")
        return cls(root)

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.path,)  # another process is another writer

    def __repr__(self) -> str:
        return f"Store({self.path!r})"

    def write_document(self, name: str, document: Any) -> None:
        """Store a small JSON document under `name`; writing different content under the same name raises StoreError."""
        relative, data = _document_path(name), records.document_file(document)
        if len(data) > LARGEST_DOCUMENT:
            raise StoreError(f"Document {name!r} takes {len(data)} bytes, but the limit is {LARGEST_DOCUMENT}.")
        with files.explained(f"write document {name!r} in {self.path}"):
            self.make_durable("documents")
            path = self._inside(relative)
            try:
                if os.path.lexists(path):
                    raise FileExistsError
                files.write_atomically(path, data, once=True)
            except FileExistsError:  # written before, or another process was faster
                if canonical(self.read_document(name)) != canonical(document):
                    raise StoreError(f"The run at {self.path} already has another document {name!r}.") from None
                files.sync_file(path)  # its writer may have died before doing so
            record = {"kind": "document", "document": name, "sha256": records.sha256(data)}
            if record["sha256"] not in self._refreshed().documents.get(name, ()):
                self._append(record | {"time": records.now()})  # so that a deletion can be detected

    def read_document(self, name: str) -> Any:
        """The document called `name`, verified by its hash."""
        relative = _document_path(name)
        with files.explained(f"read document {name!r} in {self.path}"):
            try:
                return records.document_in(files.read(self._inside(relative), most=LARGEST_DOCUMENT))
            except FileNotFoundError:
                raise StoreError(f"The run at {self.path} has no document {name!r}.") from None
            except records.NOT_JSON:
                pass
        raise StoreError(f"Document {name!r} of the run at {self.path} is damaged.")

    def documents(self) -> list[str]:
        """The names of all documents, sorted."""
        with files.explained(f"list the documents of {self.path}"):
            folder = self._inside("documents")
            names = os.listdir(folder) if os.path.isdir(folder) else []
        found = [n.removesuffix(".json") for n in names if n.endswith(".json")]
        return sorted(n for n in found if DOCUMENT_NAME.fullmatch(n))

    def commit(self, block: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any] | None = None) -> Entry:
        """Store `arrays` as `block`; when this returns, the block is done and survives a power cut.

        Committing a block again is harmless. If an intact block with different bytes is already recorded, that one is kept
        and its entry is returned; `verify` reports the conflict.
        """
        relative, data = _block_path(block), files.pack(arrays)
        if len(data) > LARGEST_BLOCK:
            raise StoreError(
                f"Block {block[:12]}… takes {len(data)} bytes, but the limit is {LARGEST_BLOCK}: split it."
            )
        record = {"block": block, "sha256": records.sha256(data), "bytes": len(data), "time": records.now()}
        record["meta"] = records.plain(dict(meta or {}))
        records.manifest_line(record)  # raise for a large meta before anything is written
        with files.explained(f"commit block {block[:12]}… in {self.path}"):
            self.make_durable("manifests")  # first, so that no block is written for nothing
            self.make_durable(os.path.dirname(relative))
            path = self._inside(relative)
            found = files.digest(path) or self._archived(block)
            if found == record["sha256"]:
                self._sync(block)  # its writer may have died before doing so
            elif found is None or found not in {entry.sha256 for entry in self._entries(block)}:
                files.write_atomically(path, data)
            record["time"] = records.now()
            writer = self._append(record)
        if found in (None, record["sha256"]):
            return Entry(**record, writer=writer)
        return self._winner(self._entries(block))

    def record_failure(self, block: str, error: str) -> None:
        """Record that an attempt at `block` failed, with its error."""
        _block_path(block)
        text = str(error).encode(errors="backslashreplace").decode()
        text = text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"
        attempt = len(self._refreshed().failures.get(block, ())) + 1
        with files.explained(f"record a failure of block {block[:12]}… in {self.path}"):
            self._append({"kind": "failed", "block": block, "error": text, "attempt": attempt, "time": records.now()})

    def done(self) -> dict[str, Entry]:
        """Every committed block and its entry; repeated calls are cheap."""
        entries = self._refreshed().entries
        return {
            block: candidates[0] if len(candidates) == 1 else self._winner(candidates)
            for block, candidates in entries.items()
        }

    def done_blocks(self) -> Collection[str]:
        """The ids of all committed blocks, which a worker reads before each block."""
        return self._refreshed().entries.keys()

    def failed(self) -> dict[str, list[str]]:
        """The errors, oldest first, of every block that failed and is not done."""
        ledger = self._refreshed()
        unfinished = {
            block: sorted(candidates) for block, candidates in ledger.failures.items() if block not in ledger.entries
        }
        return {block: [error for _, _, error in candidates] for block, candidates in unfinished.items()}

    def read(self, block: str, check: bool = True) -> dict[str, np.ndarray]:
        """The arrays of a done block, verified by their SHA-256 unless `check` is False."""
        _block_path(block)
        if known := self._ledger.entries.get(block):
            try:
                return self.load(block, known, check)
            except DamagedBlock:
                pass  # another writer may have replaced it: read the manifests again
        if not (entries := self._entries(block)):
            raise StoreError(f"Block {block[:12]}… is not done in the run at {self.path}.")
        return self.load(block, entries, check)

    def load(self, block: str, entries: list[Entry], check: bool = True) -> dict[str, np.ndarray]:
        """The arrays of a block that matches one of `entries`; raises DamagedBlock."""
        problem: DamagedBlock | None = None
        sizes = {entry.bytes for entry in entries if 0 <= entry.bytes <= LARGEST_BLOCK}
        check_room(max(sizes, default=0), f"Block {block[:12]}…", least=1 << 28)
        with files.explained(f"read block {block[:12]}… in {self.path}"):
            for data in self._copies(block, max(sizes, default=0) + 1):
                try:
                    return _arrays(block, data, entries, sizes, check)
                except DamagedBlock as found:
                    problem = problem or found
        raise problem or DamagedBlock(
            "missing", f"Block {block[:12]}… is missing: it is neither in {_block_path(block)} nor in an archive."
        )

    def _copies(self, block: str, most: int) -> Iterator[bytes]:
        """All copies of a block's bytes: first in its own file, then in archives."""
        path = self._inside(_block_path(block))
        for _ in range(2):  # a block may move into an archive, or between archives, during the search
            with suppress(FileNotFoundError):
                yield files.read(path, most=most)
            for place in self._archives.places(block):
                try:
                    self._inside(f"archives/{place[0]}.pack")
                    yield self._archives.read(place)
                except FileNotFoundError:
                    self._archives.refresh()

    def sound_bytes(self, block: str) -> bytes | None:
        """The bytes of a done block, verified by its manifest; None if they are damaged or too large."""
        entries = self._ledger.entries.get(block) or self._entries(block)
        known = {entry.sha256 for entry in entries}
        with files.explained(f"read block {block[:12]}… in {self.path}"):
            copies = self._copies(block, max((entry.bytes for entry in entries), default=0) + 1)
            return next((data for data in copies if records.sha256(data) in known), None)

    def block_file(self, block: str) -> str:
        """The path of a block's own file, which may not exist."""
        return self._inside(_block_path(block))

    def compact(self) -> tuple[int, int]:
        """Move small blocks into a few archives; return the numbers of both. Others may read and write meanwhile."""
        with files.explained(f"compact {self.path}"):
            self._refreshed()
            self._inside("archives")
            return archives.compact(self, self._archives)

    def verify(self) -> list[Problem]:
        """Read everything and return all problems.

        A `leftover` is harmless; a damaged block is repaired when it is committed again.
        """
        return list(problems_of(self, RUN_FILE))

    def clean_copies(self) -> int:
        """Remove redundant files: copies of archived blocks, and archives damaged beyond repair."""
        with files.explained(f"clean {self.path}"):
            return archives.clean(self, self._archives)

    def clean_temporaries(self, older_than_s: float) -> int:
        """Remove temporary files untouched for `older_than_s` seconds; return their number."""
        found = [item for _, item in walk(self.path) if item and files.TEMPORARY.fullmatch(item.name)]
        temporaries = [item.path for item in found if item.is_file(follow_symlinks=False)]
        with files.explained(f"clean {self.path}"):
            return sum(files.remove(path, unchanged_since=time.time() - older_than_s) for path in temporaries)

    def _winner(self, entries: list[Entry]) -> Entry:
        """The first entry whose bytes are on disk, or the first entry if there is none."""
        ordered = sorted(entries, key=lambda entry: (entry.time, entry.writer))
        if len({entry.sha256 for entry in ordered}) > 1:
            block = ordered[0].block
            with files.explained(f"read block {block[:12]}… in {self.path}"):
                found = files.digest(self._inside(_block_path(block))) or self._archived(block)
            ordered.sort(key=lambda entry: entry.sha256 != found)
        return ordered[0]

    def _archived(self, block: str) -> str | None:
        """The SHA-256 of the copy of a block in an archive."""
        found = (self._archives.read(place) for place in self._archives.places(block))
        try:
            return next((records.sha256(data) for data in found), None)
        except FileNotFoundError:
            return None

    def _sync(self, block: str) -> None:
        path = self._inside(_block_path(block))
        if not os.path.lexists(path):
            path = next((self._archives.path(place[0]) for place in self._archives.places(block)), path)
        files.sync_file(path)

    def _entries(self, block: str) -> list[Entry]:
        return self._refreshed().entries.get(block, [])

    def _refreshed(self) -> records.Ledger:
        with files.explained(f"read the manifests of {self.path}"):
            folder = self._inside("manifests")
            if os.path.isdir(folder):
                self._ledger.refresh(folder)
            else:
                self._ledger = records.Ledger()
        return self._ledger

    def _append(self, record: dict[str, Any]) -> str:
        """Append a line to this writer's own manifest; return the writer's id."""
        writer, process = self._writer
        if process != os.getpid():
            writer = os.urandom(16).hex()
        self._writer = ("", 0)  # until this line is complete: nothing may follow a torn line
        self.make_durable("manifests")
        path = self._inside(f"manifests/{writer}.jsonl")
        files.append(path, records.manifest_line(record))
        if path not in self._durable:
            files.sync_folder(os.path.dirname(path))
            self._durable.add(path)
        self._writer = (writer, os.getpid())
        return writer

    def make_durable(self, folder: str) -> None:
        """Create a folder of the run, and make its name durable once per process, even if another process created it."""
        if parent := os.path.dirname(folder):
            self.make_durable(parent)
        path = self._inside(folder)
        if path not in self._durable or not os.path.isdir(path):
            files.make_folder(path)
            self._durable.add(path)

    def _inside(self, relative: str) -> str:
        """The absolute path; raises StoreError if any part of it is a symbolic link."""
        path = os.path.join(self.path, relative)
        if os.path.realpath(path) != path:
            raise StoreError(f"{path} goes through a symbolic link, which is not allowed in a run.")
        return path


def _arrays(
    block: str, data: bytes, entries: list[Entry], sizes: set[int], check: bool = True
) -> dict[str, np.ndarray]:
    """The arrays in the bytes of a block; raises DamagedBlock if no entry matches them."""
    name = f"Block {block[:12]}…"
    if len(data) not in sizes:
        kind = "truncated" if len(data) < min(sizes, default=0) else "flipped"
        raise DamagedBlock(
            kind, f"{name} is damaged: its length is not the {entries[0].bytes} bytes that were committed."
        )
    if check and records.sha256(data) not in {entry.sha256 for entry in entries}:
        raise DamagedBlock("flipped", f"{name} is damaged: its bytes differ from those that were committed.")
    try:
        return files.unpack(data)
    except ValueError as error:
        raise DamagedBlock("unreadable", f"{name} contains no readable arrays: {error}.") from error


def _resolved(path: Path) -> str:
    try:
        return os.path.realpath(os.fspath(path))
    except (TypeError, ValueError, OSError):
        raise StoreError(f"{path!r} is not a path.") from None


def _block_path(block: str) -> str:
    if not (isinstance(block, str) and BLOCK_ID.fullmatch(block)):
        raise StoreError(f"{str(block)[:100]!r} is not a block id of 64 hexadecimal digits, as returned by block_id.")
    return f"blocks/{block[:2]}/{block}.npz"


def _document_path(name: str) -> str:
    if not (isinstance(name, str) and DOCUMENT_NAME.fullmatch(name)):
        raise StoreError(f"A document cannot be called {str(name)[:100]!r}: use a-z, 0-9, '.', '_' and '-'.")
    return f"documents/{name}.json"
