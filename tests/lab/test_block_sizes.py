"""Blocks take a few seconds by the costs that models declare, if there is enough work, independent of chance."""

from __future__ import annotations

import numpy as np
import pytest

import solvable as sv
from solvable.lab.compute import compute_block
from solvable.lab.planning import FEW_BLOCKS, MOST_CELLS, _lanes
from solvable.registry import create, listings


def block_seconds(model: sv.Model, kind: str, number: int, size: int | None = None) -> tuple[float, int]:
    """Seconds (by the model's declared costs) and cells of a block, in a sweep of `number` cells."""
    variant = next(iter(sv.Study(model, {}, sizes=[size or 50], seeds=1).planning.variants.values()))
    lengths = [] if size is None else [round(usual * size) for usual in variant.cost.usual]
    _, cells = _lanes(variant, kind, number, size, lengths)
    return cells * variant.cost.of(kind, size, lengths), cells


@pytest.mark.parametrize("id", sorted(listings()))
@pytest.mark.parametrize("which", [0, -1])
def test_a_large_simulated_sweep_of_any_model_has_blocks_of_ten_to_sixty_seconds(id, which):
    model = create(id)
    size = type(model).typical_sizes[which]
    seconds, cells = block_seconds(model, "simulation", 1_000_000, size)
    assert 10 <= seconds <= 60 or cells == 1


@pytest.mark.parametrize("id", sorted(listings()))
def test_a_large_theory_sweep_of_any_model_has_blocks_of_ten_to_sixty_seconds(id):
    model = create(id)
    if model.has_theory:
        seconds, cells = block_seconds(model, "theory", 10_000_000)
        assert 10 <= seconds <= 60
        assert cells <= MOST_CELLS


def test_a_small_sweep_still_has_blocks_for_several_workers():
    study = sv.Study(sv.Perceptron(), {"samples": np.linspace(1, 4, 40)}, sizes=[50], seeds=100)
    blocks = [b for b in study.plan() if b["kind"] == "simulation"]
    assert len(blocks) >= FEW_BLOCKS


def test_a_block_of_several_batches_equals_its_batches():
    model = sv.Perceptron(loss="square")
    [block] = [b for b in sv.Study(model, {}, sizes=[20], seeds=7).plan() if b["kind"] == "simulation"]
    several = {**block, "lanes": 3}
    whole = compute_block(model, several)
    for start in (0, 3, 6):
        own = block["seeds"][start : start + 3]
        alone = compute_block(model, {**several, "cells": len(own), "seeds": own})
        for name, values in alone.items():
            np.testing.assert_array_equal(whole[name][start : start + 3], values)
