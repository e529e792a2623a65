"""Many small blocks in few files: an archive holds the very bytes of blocks, one behind the other, and where each begins.

    <bytes of the blocks> <index: JSON> <length of the index: 8 bytes> <SHA-256 of the index> <MAGIC>

Its name is the SHA-256 of the whole file. The manifests go on vouching for every block by its own SHA-256, so a block in
an archive is as safe as one in a file, and an archive can vanish behind a larger one at any moment.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from . import _files as files
from . import _records as records
from ._files import StoreError

if TYPE_CHECKING:
    from .store import Store

MAGIC = b"solvable archive 1\n"
NAME = re.compile(r"([0-9a-f]{64})\.pack")
LARGEST = 1 << 26  # bytes of blocks in one archive
MOST_BLOCKS = 50_000
SMALL = LARGEST // 4  # archives up to this size are merged into larger ones
LARGEST_INDEX = 1 << 24
TRAILER = 8 + 32 + len(MAGIC)

Place = tuple[str, int, int]  # the archive's name, where the block begins in it, how long it is


class Archives:
    """The archives of one run; every index is read once, since an archive never changes."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, dict[str, Place]] = {}

    def path(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.pack")

    def listed(self) -> list[str]:
        """What lies in the folder of archives."""
        if os.path.islink(self._folder):
            raise StoreError(f"{self._folder} goes through a symbolic link, which no run contains.")
        try:
            return sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []

    def refresh(self) -> dict[str, dict[str, Place]]:
        """Every archive that is there and can be read, and the places of its blocks."""
        names = {found[1] for name in self.listed() if (found := NAME.fullmatch(name))}
        for name in names - set(self._known):
            try:
                self._known[name] = read_index(self.path(name), name)
            except (OSError, StoreError, ValueError):
                continue  # damaged, or gone meanwhile: `verify` tells, and its blocks are missing
        for name in set(self._known) - names:
            del self._known[name]
        return self._known

    def places(self, block: str) -> list[Place]:
        """Where a block is found; looks at the folder only when it is not where it was."""
        if not (known := self._places(block)):
            self.refresh()
            known = self._places(block)
        return known

    def _places(self, block: str) -> list[Place]:
        return [places[block] for places in self._known.values() if block in places]

    def read(self, place: Place) -> bytes:
        name, start, length = place
        return files.read(self.path(name), start=start, most=length)


def read_index(path: str, name: str) -> dict[str, Place]:
    """The places of an archive's blocks; ValueError unless the index is whole and lies inside the file."""
    size = files.size_of(path)
    trailer = files.read(path, start=max(0, size - TRAILER), most=TRAILER)
    length = int.from_bytes(trailer[:8], "little")
    if len(trailer) != TRAILER or trailer[40:] != MAGIC or not 0 < length <= min(LARGEST_INDEX, size - TRAILER):
        raise ValueError("it has no index")
    text = files.read(path, start=size - TRAILER - length, most=length)
    if bytes.fromhex(records.sha256(text)) != trailer[8:40]:
        raise ValueError("its index is damaged")
    places = {}
    try:
        for block, (start, long) in json.loads(text).items():
            if not (
                records.BLOCK_ID.fullmatch(block) and type(start) is type(long) is int and 0 <= start <= start + long
            ):
                raise ValueError("its index makes no sense")
            if start + long > size:
                raise ValueError("its index leads out of the file")
            places[block] = (name, start, long)
    except (AttributeError, TypeError, RecursionError):
        raise ValueError("its index makes no sense") from None
    return places


def archive_file(blocks: Iterable[tuple[str, bytes]]) -> bytes:
    """The bytes of an archive."""
    places, parts, position = {}, [], 0
    for block, data in blocks:
        places[block] = (position, len(data))
        parts.append(data)
        position += len(data)
    index = json.dumps(places, separators=(",", ":")).encode()
    seal = bytes.fromhex(records.sha256(index))
    return b"".join([*parts, index, len(index).to_bytes(8, "little"), seal, MAGIC])


def compact(store: "Store", archives: Archives) -> tuple[int, int]:
    """Move small blocks into archives; how many blocks into how many. May be stopped, or run twice, at any moment.

    A file is removed only when an archive that holds all its blocks is durable and reads back as it was written.
    """
    moved = written = 0
    for group in _groups(store, archives):
        found = {block: store.sound_bytes(block) for _, blocks, _ in group for block in blocks}
        contents = {block: data for block, data in found.items() if data is not None}
        sources = [path for path, blocks, _ in group if all(block in contents for block in blocks)]
        if len(sources) < 2:
            continue
        data = archive_file(sorted(contents.items()))
        name = records.sha256(data)
        store.make_durable("archives")
        try:
            files.write_atomically(archives.path(name), data, once=True)
        except FileExistsError:
            files.sync_file(archives.path(name))  # somebody else compacts, too, and may have died before doing so
        if files.digest(archives.path(name)) != name:
            raise StoreError(f"Archive {name[:12]}… does not read back as it was written.")
        for source in sources:
            if source != archives.path(name):
                files.discard(source)
        moved, written = moved + len(contents), written + 1
    return moved, written


def _groups(store: "Store", archives: Archives) -> Iterator[list[tuple[str, list[str], int]]]:
    """Files, the blocks they hold and their length, in groups that fit into one archive each."""
    loose = [(store.block_file(entry.block), [entry.block], entry.bytes) for entry in store.done().values()]
    loose = [unit for unit in loose if os.path.lexists(unit[0]) and unit[2] <= SMALL]
    small = [
        (archives.path(name), list(places), sum(long for _, _, long in places.values()))
        for name, places in sorted(archives.refresh().items())
    ]
    group: list[tuple[str, list[str], int]] = []
    total = blocks = 0
    for unit in [*loose, *(unit for unit in small if unit[2] <= SMALL)]:
        if group and (total + unit[2] > LARGEST or blocks + len(unit[1]) > MOST_BLOCKS):
            yield group
            group, total, blocks = [], 0, 0
        group.append(unit)
        total, blocks = total + unit[2], blocks + len(unit[1])
    yield group


def clean(store: "Store", archives: Archives) -> int:
    """Remove the files of blocks that a sound archive holds, and damaged archives once all blocks are safe elsewhere."""
    done, removed = store.done(), 0
    known = archives.refresh()
    names = [found[1] for name in archives.listed() if (found := NAME.fullmatch(name))]
    sound = {name for name in names if name in known and files.digest(archives.path(name)) == name}
    safe = {block for name in sound for block in known[name]}
    for block in done:
        path = store.block_file(block)
        if block in safe:
            removed += files.discard(path)
        elif files.digest(path) == done[block].sha256:
            safe.add(block)
        elif len(sound) < len(names) and (data := store.sound_bytes(block)) is not None:
            store.make_durable(f"blocks/{block[:2]}")
            files.write_atomically(path, data)  # out of a damaged archive
            safe.add(block)
    if safe >= set(done):
        removed += sum(files.discard(archives.path(name)) for name in names if name not in sound)
    return removed
