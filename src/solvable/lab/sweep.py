"""The worker of a sweep: any number of them, anywhere, finish one stored study together.

There are no claims and no locks. A block's content follows from its specification, so two workers that compute the same
block commit the same bytes: the worst that can happen is work done twice. (The same bytes on the same kind of processor
and with the same number of threads, which is why the commands give every worker one. Elsewhere the last bits may differ;
then the block that was committed first stays, and `verify` tells of the other.) A worker may be killed at any moment.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidValue
from ..study import Study, provenance
from . import compute
from .plan import cells_of
from .status import MOST_FAILURES, stored_study
from .store import DamagedBlock, Store, StoreError, block_id


@dataclass(frozen=True)
class Worked:
    """What one worker did: blocks computed, of these healed, attempts that raised, and blocks of the plan left over."""

    study: str
    computed: int
    healed: int
    failures: int
    left: int
    seconds: float


def shard_of(block: str, number: int) -> int:
    """To which of `number` shards a block belongs: by its id alone, so that all workers agree.

    >>> shard_of("0" * 15 + "7" + "0" * 48, 4)
    3
    """
    return int(block[:16], 16) % number


def checked_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """`(i, n)`, refused in one sentence unless 0 ≤ i < n."""
    index, number = shard
    if not 0 <= index < number <= 1_000_000:
        raise InvalidValue(f"shard {index}/{number} is not of the form i/n with 0 ≤ i < n ≤ 1000000.")
    return index, number


def work(
    path: str | os.PathLike[str],
    shard: tuple[int, int] = (0, 1),
    say: Callable[[str], None] = lambda sentence: None,
    *,
    study: str = "",
    retry: bool = False,
    wanted: Callable[[], bool] = lambda: True,
) -> Worked:
    """Do what is undone in the stored study at `path`: first this worker's shard, then the others', in random order.

    A block that raises is tried again at the end, and given up after three attempts by whomever (`retry` grants three
    more). Done blocks of the shard whose files are damaged are computed again. Between blocks, `wanted` may stop it.
    """
    begun = time.perf_counter()
    index, number = checked_shard(shard)
    store = Store.open(path)
    name, specification = stored_study(store, study)
    lab = Study.from_specification(specification, store)
    blocks, models = _planned(lab, store), lab.variants()
    damaged = _damaged(lab, store, lambda block: shard_of(block, number) == index, say)
    blocks = damaged | blocks
    mine = [b for b in blocks if b not in damaged and shard_of(b, number) == index]
    others = [b for b in blocks if b not in damaged and shard_of(b, number) != index]
    random.SystemRandom().shuffle(others)  # so that helpers do not all help with the same block
    before = {b: len(errors) for b, errors in store.failed().items()} if retry else {}
    queue, tried, computed = deque([*damaged, *mine, *others]), Counter[str](), Counter[str]()
    while queue and wanted():
        block = queue.popleft()
        if block not in damaged and block in store.done():
            continue
        # A damaged block counts as done for the store, which then tells of no failures: this worker's own count must do.
        if max(tried[block], len(store.failed().get(block, ())) - before.get(block, 0)) >= MOST_FAILURES:
            continue
        said, started = blocks[block], time.perf_counter()
        try:
            arrays = compute.compute_block(models[block_id(said["variant"])], said)
        except Exception as problem:  # whatever a model raises concerns its block only
            tried[block] += 1
            sentence = f"{type(problem).__name__}: {problem}"
            store.record_failure(block, sentence)
            say(f"block {block[:12]}… failed: {sentence.splitlines()[0][:300]}")
            queue.append(block)
            continue
        seconds = time.perf_counter() - started
        store.commit(block, arrays, {"seconds": round(seconds, 4), "shard": f"{index}/{number}", **provenance()})
        computed["healed" if block in damaged else "new"] += 1
        say(f"block {block[:12]}… done: {len(said['seeds'])} cells of {said['kind']} in {seconds:.3g} s")
    done = store.done()
    left = sum(b not in done for b in blocks) + len(damaged) - computed["healed"]
    seconds = time.perf_counter() - begun
    return Worked(name, computed.total(), computed["healed"], tried.total(), left, round(seconds, 3))


def _planned(lab: Study, store: Store) -> dict[str, dict[str, Any]]:
    try:
        return dict(lab._planned(store))
    except StoreError:
        return dict(lab._planned(store))  # somebody else planned at the same moment, and theirs counts


def _damaged(
    lab: Study, store: Store, ours: Callable[[str], bool], say: Callable[[str], None]
) -> dict[str, Mapping[str, Any]]:
    """The done blocks of this study, of whatever plan, that the disk no longer holds as they were committed."""
    done, found = store.done(), {}
    if not any(map(ours, done)):
        return {}
    cells = set(lab.cells())
    for block, said in lab._all_blocks(store).items():
        if block in done and ours(block) and not cells.isdisjoint(cells_of(said, block_id(said["variant"]))):
            try:
                store.read(block)
            except DamagedBlock as problem:
                say(f"{problem} It is computed again.")
                found[block] = said
    return found
