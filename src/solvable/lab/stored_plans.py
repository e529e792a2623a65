"""Stored plans, written in pieces and read only as far as needed, so that no process holds a whole plan in memory.

plan-<study>        the programs, and the names of the other documents; written last, when the plan is complete
index-<hash>        a few thousand blocks: id, cells, program, and where the specification is
piece-<hash>        the blocks' own parts
split-<block>       a block that did not fit into memory, as the smaller blocks that replace it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from .planning import check_format, columns_of, split_block
from .store import StoreError, block_id

PIECE_CELLS, PIECE_BLOCKS = 25_000, 4_000
INDEX_BLOCKS = 20_000
MOST_LANES = 1 << 20
WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError)


class Documents(Protocol):
    """The part of a store that a plan needs."""

    def documents(self) -> list[str]: ...
    def read_document(self, name: str) -> Any: ...
    def write_document(self, name: str, document: Any) -> None: ...


class Row(NamedTuple):
    """A block of a plan: its id, its number of cells, the index of its program, and the position of its own part."""

    block: str
    cells: int
    program: int
    piece: int
    position: int


def plan_name(specification: Mapping[str, Any]) -> str:
    """The name of the plan of a study."""
    return f"plan-{block_id({'study': specification})[:24]}"


def write_plan(
    store: Documents,
    name: str,
    blocks: Iterable[tuple[dict[str, Any], dict[str, Any]]],
    covered: int = 0,
    programs: Iterable[dict[str, Any]] = (),
) -> None:
    """Store a plan; `covered` is the number of cells left out because an earlier plan has computed them."""
    known: list[dict[str, Any]] = list(programs)
    pieces: list[str] = []
    indices: list[str] = []
    piece: list[Any] = []
    index: list[Any] = []
    cells = number = total = 0

    def flush(kind: str, rows: list[Any], names: list[str]) -> None:
        if rows:
            document = {"blocks": list(rows)}
            # Named by content: if two processes plan at once, each writes its own pieces, and one head wins.
            names.append(f"{kind}-{hashlib.sha256(json.dumps(document).encode()).hexdigest()[:48]}")
            store.write_document(names[-1], document)
            rows.clear()

    for program, own in blocks:
        if not known or known[-1] != program:
            known.append(program)
        index.append([block_id(program | own), own["cells"], len(known) - 1, len(pieces), len(piece)])
        piece.append(own)
        cells, number, total = cells + own["cells"], number + 1, total + own["cells"]
        if cells >= PIECE_CELLS or len(piece) >= PIECE_BLOCKS:
            flush("piece", piece, pieces)
            cells = 0
        if len(index) >= INDEX_BLOCKS:
            flush("index", index, indices)
    flush("piece", piece, pieces)
    flush("index", index, indices)
    head = {"programs": known, "pieces": pieces, "index": indices, "number": number, "cells": total, "covered": covered}
    store.write_document(name, head)


class Plan:
    """A stored plan; its rows are read when it is opened, specifications on demand."""

    def __init__(self, store: Documents, name: str):
        self.name, self._store = name, store
        self._own: dict[str, dict[str, Any]] = {}  # specifications of split and adopted blocks
        self._loaded: dict[int, list[Any]] = {}
        try:
            head = store.read_document(name)
            if isinstance(head.get("blocks"), list):  # the whole plan is in one document
                check_format(1, self._described())
            self.covered: int = head.get("covered", 0)
            self._programs: list[dict[str, Any]] = head["programs"]
            self._pieces: list[str] = head["pieces"]
            for program in self._programs:
                check_format(program["format"], self._described())
            rows = [Row(*row) for part in head["index"] for row in store.read_document(part)["blocks"]]
            if not all(isinstance(r.block, str) and type(r.cells) is int and r.cells > 0 for r in rows):
                raise ValueError
            if not all(isinstance(p, str) for p in self._pieces):
                raise ValueError
        except WRONG:
            raise self._invalid() from None
        self.replaced: list[str] = []  # blocks that were replaced by smaller ones
        split = {n for n in store.documents() if n.startswith("split-")}
        self._all = {row.block: row for row in rows} if split else {}
        self.rows = list(self._resolved(rows, split)) if split else rows

    def _described(self) -> str:
        return f"Document {self.name!r} of the run at {getattr(self._store, 'path', 'memory')}"

    def _invalid(self) -> StoreError:
        return StoreError(f"{self._described()} is not a valid plan.")

    def _rows_of(self, split: str) -> list[Row]:
        """The blocks that a block was split into."""
        programs: dict[str, int] = {}
        rows = []
        try:
            for spec in self.split(split) or []:
                check_format(spec["format"], f"Document {split_name(split)!r} of the run")
                program = json.dumps([spec["kind"], spec.get("size"), spec.get("padded"), spec.get("lanes")])
                number = -1 - programs.setdefault(program, len(programs))
                rows.append(Row(block_id(spec), spec["cells"], number, -1, -1))
                self._own[rows[-1].block] = spec
        except WRONG:
            raise _no_split(split) from None
        return rows

    def _resolved(self, rows: Iterable[Row], split: set[str]) -> Iterator[Row]:
        for row in rows:
            if split_name(row.block) in split:
                self.replaced.append(row.block)
                yield from self._resolved(self._rows_of(row.block), split)
            else:
                yield row

    def split(self, block: str) -> list[dict[str, Any]] | None:
        """The blocks that a block was split into; None if it was not."""
        name = split_name(block)
        if name not in self._store.documents():
            return None
        try:
            spec = self._store.read_document(name)
            if spec["block"] != block:
                raise ValueError
            return spec["blocks"]
        except WRONG:
            raise _no_split(block) from None

    def record_split(self, block: str, lanes: int, why: str) -> list[Row]:
        """Replace a block by smaller ones; if another worker has already split it, its split is used."""
        document = {"block": block, "why": why, "blocks": split_block(self.specification(block), lanes)}
        try:
            self._store.write_document(split_name(block), document)
        except StoreError:
            if self.split(block) is None:
                raise
        return self.pieces_of(block)

    def pieces_of(self, block: str) -> list[Row]:
        """The blocks that replace a split block."""
        split = {n for n in self._store.documents() if n.startswith("split-")}
        return list(self._resolved(self._rows_of(block), split))

    def specification(self, block: str, row: Row | None = None) -> dict[str, Any]:
        """The specification of a block; its row is looked up unless given."""
        if block in self._own:
            try:
                return _checked(self._own[block])
            except WRONG:
                raise self._invalid() from None
        row = row or self.row(block)
        try:
            if row.piece not in self._loaded:
                while len(self._loaded) > 1:
                    self._loaded.pop(next(iter(self._loaded)))
                self._loaded[row.piece] = self._store.read_document(self._pieces[row.piece])["blocks"]
            return _checked(self._programs[row.program] | self._loaded[row.piece][row.position])
        except WRONG:
            raise self._invalid() from None

    def row(self, block: str) -> Row:
        """The row of a block."""
        found = self._all.get(block) or next((r for r in self.rows if r.block == block), None)
        if found is None:
            raise StoreError(f"Block {block[:12]}… is not in {self.name!r}.")
        return found

    def adopt(self, block: str, specification: dict[str, Any]) -> Row:
        """A row for a block of another plan."""
        self._own[block] = specification
        return Row(block, specification["cells"], -1, -1, -1)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every block and its specification, in order."""
        for row in self.rows:
            yield row.block, self.specification(row.block, row)

    def __len__(self) -> int:
        return len(self.rows)


def _checked(spec: dict[str, Any]) -> dict[str, Any]:
    """Check a block's specification; raises ValueError if its numbers are inconsistent or out of range."""
    number, lanes = spec["cells"], spec["lanes"]
    if not (type(number) is type(lanes) is int and 1 <= number <= MOST_LANES and 1 <= lanes <= MOST_LANES):
        raise ValueError
    columns = [*columns_of(spec)[0], *columns_of(spec)[1:]]
    if any(isinstance(column, list) and len(column) != number for column in columns):
        raise ValueError
    return spec


def _no_split(block: str) -> StoreError:
    return StoreError(f"Document {split_name(block)!r} of the run is not a valid split of a block.")


def split_name(block: str) -> str:
    """The name of the document that describes the split of a block."""
    return f"split-{block}"


def plans(store: Documents) -> list[str]:
    """The names of all plans of a run."""
    return [n for n in store.documents() if n.startswith("plan-")]
