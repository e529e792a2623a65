"""Verification of a run: list everything in its folder and read everything that the manifests record."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _files as files
from . import _records as records
from ._archives import read_index
from ._files import StoreError

if TYPE_CHECKING:
    from .store import Store

FOLDER = re.compile(r"documents|manifests|archives|claims|blocks(/[0-9a-f]{2})?")
FILE = re.compile(
    r"run\.json|documents/(?P<document>[a-z0-9][a-z0-9._-]{0,80})\.json|manifests/(?P<writer>[0-9a-f]{32})\.jsonl"
    r"|archives/(?P<archive>[0-9a-f]{64})\.pack|claims/(?P<claim>[0-9a-f]{64}\.[0-9]{1,6}|worker-[0-9a-f]{32})"
    r"|blocks/(?P<two>[0-9a-f]{2})/(?P<block>(?P=two)[0-9a-f]{62})\.npz"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem found by `Store.verify`; prints as one sentence.

    `kind` is one of missing, truncated, flipped, unreadable, conflict, garbled, link, unexpected, or of the leftovers
    temporary, unreferenced, torn, claim. `path` is relative to the run.
    """

    kind: str
    sentence: str
    path: str
    block: str | None = None

    @property
    def leftover(self) -> bool:
        """Whether this is only a harmless leftover of an interrupted or active writer."""
        return self.kind in ("temporary", "unreferenced", "torn", "claim")

    def __str__(self) -> str:
        return self.sentence


def problems_of(store: "Store", run_file: bytes) -> Iterator[Problem]:
    """Every problem of the run, in the order of its files."""
    blocks: dict[str, str] = {}
    documents: set[str] = set()
    ledger = records.Ledger()
    for relative, item in walk(store.path):
        name = FILE.fullmatch(relative)
        if item is None:
            yield Problem("unreadable", f"{relative or store.path} cannot be listed.", relative)
        elif item.is_symlink():
            yield Problem("link", f"{relative} is a symbolic link, which is not allowed in a run.", relative)
        elif not item.is_file(follow_symlinks=False):
            yield Problem("unexpected", f"{relative} does not belong to a run.", relative)
        elif files.TEMPORARY.fullmatch(item.name):
            yield Problem("temporary", f"{relative} belongs to an interrupted or active writer.", relative)
        elif name is None:
            yield Problem("unexpected", f"{relative} does not belong to a run.", relative)
        elif name["block"]:
            blocks[name["block"]] = relative
        elif name["claim"]:
            yield Problem("claim", f"{relative} belongs to a dead or active worker.", relative)
        elif name["archive"]:
            found, problem = _contents_of_archive(store, relative, name["archive"])
            blocks |= dict.fromkeys(found, relative)
            yield from problem
        else:
            documents |= {name["document"]} - {None}
            yield from _problems_of_text(store, relative, name, run_file, ledger)
    if not os.path.lexists(os.path.join(store.path, "run.json")):
        yield Problem("missing", "run.json is missing.", "run.json")
    for name in sorted(set(ledger.documents) - documents):
        yield Problem("missing", f"Document {name!r} was written but is missing.", f"documents/{name}.json")
    for name in sorted(documents & set(ledger.documents)):
        relative = f"documents/{name}.json"
        if files.digest(os.path.join(store.path, relative)) not in ledger.documents[name]:
            yield Problem("flipped", f"Document {name!r} differs from what was written.", relative)
    for name in sorted(documents - set(ledger.documents)):
        sentence = f"Document {name!r} is in no manifest: its writer was interrupted or is still active."
        yield Problem("unreferenced", sentence, f"documents/{name}.json")
    for block, entries in sorted(ledger.entries.items()):
        yield from _problems_of_block(store, block, entries)
    for block, relative in blocks.items():
        if block not in ledger.entries:
            sentence = f"{relative} is in no manifest: its writer was interrupted or is still active."
            yield Problem("unreferenced", sentence, relative, block)


def _problems_of_text(
    store: "Store", relative: str, name: re.Match[str], run_file: bytes, ledger: records.Ledger
) -> Iterator[Problem]:
    try:
        if name["document"]:
            store.read_document(name["document"])
        elif name["writer"]:
            garbled, torn = ledger.scan(os.path.join(store.path, relative), name["writer"])
            if garbled:
                yield Problem("garbled", f"{relative} has {garbled} garbled lines.", relative)
            if torn:
                yield Problem("torn", f"{relative} ends in a torn line, which is ignored.", relative)
        elif files.read(os.path.join(store.path, relative), most=len(run_file) + 1) != run_file:
            yield Problem("flipped", f"{relative} differs from what was written.", relative)
    except StoreError as error:
        yield Problem("flipped", str(error), relative)
    except OSError as error:
        yield Problem("unreadable", f"{relative} cannot be read: {error.strerror}.", relative)


def _contents_of_archive(store: "Store", relative: str, name: str) -> tuple[list[str], list[Problem]]:
    path = os.path.join(store.path, relative)
    try:
        if (found := files.digest(path)) is None:
            return [], []  # a larger one has replaced it in the meantime
        blocks = list(read_index(path, name))
        return blocks, [] if found == name else [
            Problem("flipped", f"{relative} differs from what was written.", relative)
        ]
    except ValueError as error:
        return [], [Problem("truncated", f"{relative} is damaged: {error}.", relative)]
    except (OSError, StoreError) as error:
        return [], [Problem("unreadable", f"{relative} cannot be read: {error}.", relative)]


def _problems_of_block(store: "Store", block: str, entries: list[records.Entry]) -> Iterator[Problem]:
    relative = f"blocks/{block[:2]}/{block}.npz"
    try:
        store.load(block, entries)
    except StoreError as error:
        yield Problem(getattr(error, "kind", "unreadable"), str(error), relative, block)
    if len({entry.sha256 for entry in entries}) > 1:
        writers = sorted({entry.writer[:8] for entry in entries})
        sentence = f"Block {block[:12]}… was committed with different contents by writers {', '.join(writers)}."
        yield Problem("conflict", sentence, relative, block)


def walk(root: str, folder: str = "") -> Iterator[tuple[str, os.DirEntry[str] | None]]:
    """Everything in the run except its own folders, which alone are entered; None for one that cannot be listed."""
    try:
        with os.scandir(os.path.join(root, folder)) as found:
            items = sorted(found, key=lambda item: item.name)
    except OSError:
        yield folder, None
        return
    for item in items:
        relative = os.path.join(folder, item.name)
        if FOLDER.fullmatch(relative) and item.is_dir(follow_symlinks=False):
            yield from walk(root, relative)
        else:
            yield relative, item
