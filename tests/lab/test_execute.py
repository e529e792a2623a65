"""Studies and workers compute blocks in the same way, from a row of a plan to a commit."""

import numpy as np
import pytest

import solvable as sv
from solvable.lab.execute import Executor
from solvable.lab.memory_store import MemoryStore
from solvable.lab.planning import parts_of
from solvable.lab.store import StoreError, block_id
from solvable.lab.stored_plans import Plan, write_plan

BLOCKS = [
    {"format": 2, "kind": "stub", "size": None, "lanes": 2, "cells": 2, "controls": [], "seeds": [number, number + 1]}
    for number in range(3)
]


def squares(block):
    return {"square": np.asarray(block["seeds"]) ** 2}


@pytest.fixture
def store():
    store = MemoryStore()
    write_plan(store, "plan-a", map(parts_of, BLOCKS))
    return store


def test_every_block_is_computed_committed_and_reported_in_the_order_of_the_plan(store):
    plan, reported = Plan(store, "plan-a"), []
    executor = Executor(plan, squares, store.commit)
    assert executor.run_all(plan.rows, done=lambda row, arrays: reported.append((row.block, arrays["square"].tolist())))
    assert reported == [(block_id(b), [k**2, (k + 1) ** 2]) for k, b in enumerate(BLOCKS)]
    assert list(store.done()) == [block_id(b) for b in BLOCKS]
    np.testing.assert_array_equal(store.read(block_id(BLOCKS[2]))["square"], [4, 9])


def test_work_stops_between_two_blocks_on_request(store):
    plan = Plan(store, "plan-a")
    executor = Executor(plan, squares, store.commit)
    assert not executor.run_all(plan.rows, wanted=lambda: len(store.done()) < 2)
    assert list(store.done()) == [block_id(b) for b in BLOCKS[:2]]


def test_a_block_records_its_seconds_and_the_callers_extras(store):
    plan, remembered = Plan(store, "plan-a"), []
    Executor(plan, squares, lambda *words: remembered.append(words), lambda: {"shard": "0/1"}).run(plan.rows[0])
    [(block, arrays, meta)] = remembered
    assert block == plan.rows[0].block
    assert set(meta) == {"seconds", "shard"}
    assert meta["seconds"] >= 0


def test_a_block_that_does_not_match_its_id_is_neither_computed_nor_committed(store):
    plan = Plan(store, "plan-a")
    wrong = plan.rows[0]._replace(position=1)
    with pytest.raises(StoreError, match="Block .* does not match its specification in the plan"):
        Executor(plan, squares, store.commit).run(wrong)
    assert not store.done()


def test_a_study_refuses_a_plan_that_does_not_match():
    study = sv.Study(sv.Perceptron(loss="square"), {"samples": [0.5, 2.0]})
    store = study.attach()
    study.stored_plan()
    [piece] = [n for n in store.documents() if n.startswith("piece-")]
    [own] = store.read_document(piece)["blocks"]
    next(column for column in own["controls"] if isinstance(column, list)).reverse()
    with pytest.raises(StoreError, match="does not match its specification in the plan"):
        study.run(progress=False)
