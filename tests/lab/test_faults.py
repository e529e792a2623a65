"""Sweeps survive faults: a short campaign of many faults, and the worst ones individually."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import campaign
import numpy as np
import pytest
from campaign import STUDY, be_isolated, kernel, planned

from solvable.lab import leases as claims_of
from solvable.lab import stored_plans as plans
from solvable.lab.leases import Claims
from solvable.lab.planning import cells_of
from solvable.lab.status import status
from solvable.lab.store import Store, StoreError
from solvable.lab.worker import TooLarge, Worker
from waiting import LONG, until

SOURCE = str(Path(claims_of.__file__).parents[2])
ELSEWHERE = json.dumps({"machine": "elsewhere", "process": 1, "started": "1"}).encode()


def plan_of(store):
    return plans.Plan(store, plans.plan_name(STUDY))


def worker(store, compute=kernel, **options):
    return Worker(store, plan_of(store), compute, **options)


def commits(path):
    lines = [json.loads(line) for file in Path(path, "manifests").glob("*") for line in file.read_text().splitlines()]
    return sorted(line["block"] for line in lines if "bytes" in line)


def bits(store):
    return {b: {n: a.tobytes() for n, a in store.read(b).items()} for b in store.done()}


def expected(store):
    return {b: {n: a.tobytes() for n, a in kernel(spec).items()} for b, spec in plan_of(store)}


@pytest.fixture
def store(tmp_path):
    return planned(str(tmp_path / "run"), 12, 0)


def in_a_fresh_process(action, folder):
    """Call a function of this file in a process without JAX, because only such a process may fork."""
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    program = f"import sys; sys.path[:0] = {here!r}; import test_faults as t, pathlib as p; "
    program += f"t.{action.__name__}(p.Path({str(folder)!r})); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": SOURCE}, capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr


# --- many faults at once ----------------------------------------------------------------------------------------------


def test_sixty_faults_lose_duplicate_and_change_no_cell_and_no_more_blocks_are_computed_again_than_workers_died(
    tmp_path,
):
    tally = campaign.stub_campaign(tmp_path, 60, seed=1)
    assert sum(tally.faults.values()) == 60
    assert len(tally.faults) >= 7
    assert (tally.lost, tally.duplicated, tally.wrong, tally.given_up, tally.problems) == (0, 0, 0, 0, [])
    assert tally.reruns <= tally.ended + tally.workers


def test_the_campaign_reports_a_wrong_and_a_lost_cell(tmp_path):
    sweep = campaign.Round(tmp_path, 5)
    blocks = [row.block for row in sweep.plan.rows]
    for block, spec in sweep.plan:
        arrays = kernel(spec)
        if block == blocks[3]:
            arrays["x"][1, 2] = np.nextafter(arrays["x"][1, 2], 1)
        if block != blocks[7]:
            sweep.store.commit(block, arrays)
    Path(sweep.log).write_text("compute\n" * (len(blocks) + 9))
    tally = sweep.judged()
    assert (tally.wrong, tally.lost) == (1, sweep.plan.rows[7].cells)
    assert tally.reruns == 9
    assert not tally.sound


def test_verify_finds_every_random_damage(tmp_path):
    assert campaign.damage_everything(tmp_path, 120, seed=3) == (120, 120)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_file_system_stops_workers_with_one_sentence_without_loss(tmp_path):
    in_a_fresh_process(full_file_system, tmp_path)


def full_file_system(folder):
    outcome = campaign.full_file_system(folder, seed=0)
    assert outcome.startswith("not tried") or outcome.startswith("workers stopped with code 2"), outcome


# --- blocks that kill -------------------------------------------------------------------------------------------------


def poisonous(block):
    def compute(spec):
        if campaign.block_id(spec) == block:
            os.kill(os.getpid(), signal.SIGKILL)
        return kernel(spec)

    return compute


def forked_worker(store, compute):
    """Run a worker in a forked process without JAX; return its exit code."""

    def act():
        isolated = lambda block: be_isolated(store.path, "", block, compute)  # noqa: E731
        Worker(Store.open(store.path), plan_of(store), compute, isolated=isolated).work()

    return campaign._code(campaign.forked(act))


def test_a_block_that_kills_its_worker_is_given_up_after_three_deaths_that_prove_it_and_the_rest_goes_on(tmp_path):
    in_a_fresh_process(a_block_that_kills, tmp_path)


def a_block_that_kills(folder):
    store = planned(str(folder / "run"), 12, 0)
    bad = plan_of(store).rows[4].block
    assert forked_worker(store, poisonous(bad)) == -signal.SIGKILL
    assert status(store).blocks["failed"] == 0  # the worker may simply have been killed
    assert forked_worker(store, poisonous(bad)) == 0  # the next one survives
    outcome = status(store)
    assert outcome.blocks == {"all": 12, "done": 11, "failed": 1, "undone": 0}
    assert store.failed() == {bad: ["The worker died while computing it (signal 9)."] * 3}
    assert worker(store, retry=True, isolated=lambda b: be_isolated(store.path, "", b, kernel)).work().left == 0
    assert bits(store) == expected(store)


def test_a_block_is_not_blamed_when_its_worker_is_killed_repeatedly(tmp_path):
    in_a_fresh_process(killed_again_and_again, tmp_path)


def killed_again_and_again(folder):
    store = planned(str(folder / "run"), 12, 0)
    victim = plan_of(store).rows[0].block
    for row in plan_of(store).rows[1:]:
        store.commit(row.block, kernel(plan_of(store).specification(row.block)))

    def killed_with_its_child(spec):
        os.kill(os.getppid(), signal.SIGKILL)  # the worker, while it waits
        os.kill(os.getpid(), signal.SIGKILL)

    assert forked_worker(store, poisonous(victim)) == -signal.SIGKILL
    for _ in range(5):
        assert forked_worker(store, killed_with_its_child) == -signal.SIGKILL
    assert store.failed() == {}
    assert forked_worker(store, kernel) == 0
    assert bits(store) == expected(store)


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_claim_of_another_machine_is_left_alone_until_its_lease_is_over_by_the_clock_of_the_store(
    store, tmp_path, monkeypatch
):
    block = plan_of(store).rows[0].block
    with Claims(store.path, lease=60) as claims:
        claim = Path(claims.folder, f"{block}.0")
        claim.write_bytes(ELSEWHERE)
        for skew in (-1e6, 0.0, 1e6):  # a wrong clock of this machine changes nothing
            now = time.time() + skew
            monkeypatch.setattr(time, "time", lambda now=now: now)
            assert claims.alive(block, 0)
            assert claims.take(block) is None
            monkeypatch.undo()
        for shift in (-61, 61):  # the times of a live worker's claims are never far from the store's own time
            os.utime(claim, (claims.now() + shift,) * 2)
            assert not claims.alive(block, 0)
        assert claims.take(block, after=0) == 1
        assert claims.attempts() == {block: 1}
        claims.release(block)
        assert claims.attempts() == {}


def test_a_worker_waits_for_a_block_that_another_has_claimed_and_does_not_compute_it(store):
    row = plan_of(store).rows[0]
    with Claims(store.path, lease=30) as other:
        assert other.take(row.block) == 0
        computed = []

        def compute(spec):
            if len(computed) == 10:  # the other one has finished in the meantime
                store.commit(row.block, kernel(plan_of(store).specification(row.block)))
                other.release(row.block)
            computed.append(campaign.block_id(spec))
            return kernel(spec)

        assert status(store).running == {"blocks": 1, "cells": row.cells}
        worked = worker(store, compute).work()
    assert (worked.computed, worked.left) == (11, 0)
    assert row.block not in computed
    assert len(commits(store.path)) == 12


def test_a_worker_stays_with_a_program_and_few_workers_compile_the_same(tmp_path):
    store = planned(str(tmp_path / "run"), 40, 0)  # four programs of ten blocks
    compiled = []
    for index in range(3):
        computed = []
        left = iter(range(15))

        def compute(spec, computed=computed):
            computed.append(spec["variant"]["program"])
            return kernel(spec)

        worker(store, compute, shard=(index, 3), wanted=lambda left=left: next(left, None) is not None).work()
        switches = [a for a, b in zip(computed, [None, *computed], strict=False) if a != b]
        assert len(switches) == len(set(computed))  # it never returns to a program
        compiled += set(computed)
    assert status(store).complete
    assert len(compiled) <= 4 + 3


def test_claims_are_hints_and_a_run_without_their_folder_is_computed_as_well(store):
    Path(store.path, "claims").symlink_to("/nonexistent")
    assert worker(store).work().left == 0
    Path(store.path, "claims").unlink()
    assert bits(store) == expected(store)
    Path(store.path, "claims").write_text("not a folder")
    assert status(store).complete


def test_a_worker_stop_event_ends_in_the_middle_of_a_block_and_gives_its_claim_back(store, tmp_path):
    program = """
import sys, time
sys.path.insert(0, sys.argv[2])
from campaign import STUDY, plans
from solvable.lab.store import Store
from solvable.lab.worker import Worker, stopping_at_once
store = Store.open(sys.argv[1])
worker = Worker(store, plans.Plan(store, plans.plan_name(STUDY)), lambda said: time.sleep(600))
with stopping_at_once(worker):
    worker.work()
"""
    command = [sys.executable, "-c", program, store.path, str(Path(campaign.__file__).parent)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": SOURCE}, stderr=subprocess.PIPE, text=True)
    try:
        assert len(until(lambda: list(Path(store.path).glob("claims/*.0")))) == 1
        process.terminate()
        _, err = process.communicate(timeout=LONG)  # the block takes longer
    finally:
        process.kill()
    assert process.returncode == 1
    assert err == "solvable: stopped by a signal; committed blocks are kept.\n"
    assert list(Path(store.path, "claims").iterdir()) == []


# --- splitting --------------------------------------------------------------------------------------------------------


def small(most):
    """A kernel for which more than `most` lanes are too many."""

    def compute(spec):
        if spec["lanes"] > most:
            raise TooLarge("no room", spec["lanes"] // 2)
        return kernel(spec)

    return compute


def test_a_block_that_does_not_fit_is_split_and_recorded_and_everybody_follows(store):
    worked = worker(store, small(3)).work()
    assert worked.left == 0
    assert worked.split >= 12
    plan = plan_of(store)
    assert sorted(plan.replaced) == sorted({*plan.replaced})
    assert all(spec["lanes"] <= 3 for _, spec in plan)
    cells = [cell for _, spec in plan for cell in cells_of(spec, "")]
    assert len(cells) == len(set(cells)) == status(store).cells["done"]
    assert bits(store) == expected(store)
    assert worker(store, small(8)).work().computed == 0  # one with more memory follows the same plan
    documents = store.documents()
    assert worker(store, small(1)).work().split == 0
    assert store.documents() == documents


def test_of_two_ways_to_split_a_block_the_first_recorded_counts(store):
    plan, block = plan_of(store), next(r.block for r in plan_of(store).rows if r.cells > 4)
    first = plan.record_split(block, 2, "one worker")
    second = plan_of(store).record_split(block, 1, "another")
    assert [row.block for row in first] == [row.block for row in second]


def test_a_single_cell_that_does_not_fit_is_a_failure_and_not_a_loop(store):
    worked = worker(store, small(0)).work()
    assert worked.computed == 0
    outcome = status(store)
    assert outcome.blocks["undone"] == 0
    assert set(outcome.errors.values()) == {"MemoryError: no room"}


# --- plans in pieces --------------------------------------------------------------------------------------------------


def test_a_plan_in_many_pieces_equals_the_plan_in_one(tmp_path, monkeypatch):
    whole = planned(str(tmp_path / "whole"), 40, 3)
    monkeypatch.setattr(plans, "PIECE_CELLS", 17)
    monkeypatch.setattr(plans, "INDEX_BLOCKS", 3)
    pieces = planned(str(tmp_path / "pieces"), 40, 3)
    assert len([n for n in pieces.documents() if n.startswith("piece-")]) > 10
    assert list(plan_of(pieces)) == list(plan_of(whole))
    rows = plan_of(pieces).rows[::-1]
    assert [plan_of(pieces).specification(r.block, r) for r in rows] == [s for _, s in plan_of(whole)][::-1]


def test_a_plan_with_missing_or_invalid_pieces_is_refused_in_one_sentence(store):
    plan = plan_of(store)
    [piece] = Path(store.path, "documents").glob("piece-*")
    piece.unlink()
    with pytest.raises(StoreError, match="has no document 'piece-"):
        plan.specification(plan.rows[0].block)
    heads = ({}, {"blocks": 3}, {"programs": [], "pieces": [], "index": ["study-0001"]}, [])
    for number, head in enumerate(heads):
        other = Store.create(Path(store.path).parent / f"other{number}")
        other.write_document("study-0001", STUDY)
        other.write_document(plans.plan_name(STUDY), head)
        with pytest.raises(StoreError, match="is not a valid plan"):
            status(other)
