"""Archives: many small blocks in one file, as the concatenated bytes of the blocks and an index.

    <bytes of the blocks> <index: JSON> <length of the index: 8 bytes> <SHA-256 of the index> <MAGIC>

The name of an archive is the SHA-256 of the whole file. The manifests still record the SHA-256 of every block, so a block
in an archive is as safe as one in its own file, and a larger archive may replace a smaller one at any time.
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

Place = tuple[str, int, int]  # name of the archive, offset and length of the block


class Archives:
    """The archives of one run; every index is read only once, because archives never change."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, dict[str, Place]] = {}

    def path(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.pack")

    def listed(self) -> list[str]:
        """The files in the folder of archives."""
        if os.path.islink(self._folder):
            raise StoreError(f"{self._folder} goes through a symbolic link, which is not allowed in a run.")
        try:
            return sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []

    def refresh(self) -> dict[str, dict[str, Place]]:
        """Every readable archive and the places of its blocks."""
        names = {found[1] for name in self.listed() if (found := NAME.fullmatch(name))}
        for name in names - set(self._known):
            try:
                self._known[name] = read_index(self.path(name), name)
            except (OSError, StoreError, ValueError):
                continue  # damaged, or just removed: its blocks count as missing, and `verify` reports them
        for name in set(self._known) - names:
            del self._known[name]
        return self._known

    def places(self, block: str) -> list[Place]:
        """The places of a block; lists the folder again only if the known places no longer exist."""
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
    """The places of an archive's blocks; raises ValueError if the index is damaged or points outside the file."""
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
                raise ValueError("its index is malformed")
            if start + long > size:
                raise ValueError("its index points outside the file")
            places[block] = (name, start, long)
    except (AttributeError, TypeError, RecursionError):
        raise ValueError("its index is malformed") from None
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
    """Move small blocks into archives; return the numbers of blocks and archives.

    It may be killed, or run twice at once. A file is removed only when an archive with all its blocks is durable and has
    been read back and verified.
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
            files.sync_file(archives.path(name))  # another process wrote it and may have died before syncing
        if files.digest(archives.path(name)) != name:
            raise StoreError(f"Archive {name[:12]}… differs from what was written when it is read back.")
        for source in sources:
            if source != archives.path(name):
                files.discard(source)
        moved, written = moved + len(contents), written + 1
    return moved, written


def _groups(store: "Store", archives: Archives) -> Iterator[list[tuple[str, list[str], int]]]:
    """Files with their blocks and lengths, in groups that fit into one archive each."""
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
    """Remove files of blocks that are in an intact archive, and damaged archives once all blocks are safe elsewhere."""
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
            files.write_atomically(path, data)  # recovered from a damaged archive
            safe.add(block)
    if safe >= set(done):
        removed += sum(files.discard(archives.path(name)) for name in names if name not in sound)
    return removed
