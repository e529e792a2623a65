"""Sweeps: any number of workers, killed or failing, complete one stored study with bit-identical results."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import solvable as sv
from solvable.lab import compute, launch, sweep
from solvable.lab.export import export
from solvable.lab.launch import Dead, one_thread, parent_lives, run_workers, slurm_script
from solvable.lab.planning import parts_of
from solvable.lab.status import pace, status
from solvable.lab.store import Entry, Store, StoreError
from solvable.lab.stored_plans import Plan, plan_name, plans, split_name
from solvable.lab.sweep import work
from solvable.lab.worker import shares
from waiting import LONG, holding, until, with_path

SOURCE = str(Path(sv.__file__).parents[1])


def planned(path):
    """A study of many small blocks that share two compiled programs, planned in a new run but not computed."""
    model = sv.Perceptron(loss="square", samples=0.5)
    study = sv.Study(model, {"penalty": np.geomspace(0.1, 10, 8)}, sizes=[16], seeds=200)
    study.attach(path)
    study.stored_plan()
    return study


def contents(path):
    """The hash of every done block's bytes."""
    return {block: entry.sha256 for block, entry in Store.open(path).done().items()}


def commits(path):
    """How often each block was committed, by all writers together."""
    lines = [json.loads(line) for file in Path(path, "manifests").glob("*") for line in file.read_text().splitlines()]
    return [line["block"] for line in lines if "bytes" in line]


def wrong(path):
    return [problem for problem in Store.open(path).verify() if not problem.leftover]


def only(number):
    """A `wanted` for `number` blocks."""
    left = iter(range(number))
    return lambda: next(left, None) is not None


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The run as computed by one process without interruption."""
    path = tmp_path_factory.mktemp("sweep") / "finished"
    planned(path).run(path, progress=False)
    return path


def test_two_worker_processes_match_one_process_bit_for_bit_even_where_threads_matter(tmp_path):
    # With one process or two, every block is computed with one thread; at this size two threads give other bits.
    words = ["perceptron", "loss=square", "samples=3", "--over", "penalty=0.1,1", "--size", "300", "--seeds", "24"]
    for name, workers in (("inline", "0"), ("workers", "2")):
        command = [sys.executable, "-m", "solvable", "sweep", "run", str(tmp_path / name), *words, "--workers", workers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stderr
    assert len(contents(tmp_path / "inline")) > 2
    assert contents(tmp_path / "inline") == contents(tmp_path / "workers")
    assert wrong(tmp_path / "workers") == []
    assert status(tmp_path / "workers").complete


def test_a_killed_worker_loses_no_committed_block_and_none_is_repeated(finished, tmp_path):
    planned(tmp_path / "run")
    held, _ = holding(tmp_path / "site", after=3)
    environment = one_thread(with_path(held, SOURCE))
    command = [sys.executable, "-m", "solvable", "sweep", "work", str(tmp_path / "run")]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: status(tmp_path / "run").blocks["done"] == 3)
    worker.send_signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    before = contents(tmp_path / "run")
    assert len(before) == 3 < len(contents(finished))
    worked = work(tmp_path / "run")
    assert worked.computed == len(contents(finished)) - len(before)
    assert contents(tmp_path / "run") == contents(finished)
    assert sorted(commits(tmp_path / "run")) == sorted(contents(finished))  # every block once
    assert wrong(tmp_path / "run") == []


def test_a_dead_worker_is_reported_and_the_other_finishes_its_share(finished, tmp_path, monkeypatch):
    planned(tmp_path / "run")
    started = []

    class Recorded(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self)

    monkeypatch.setattr(launch.subprocess, "Popen", Recorded)

    def kill_the_first():
        if started[0].poll() is None:
            started[0].kill()

    assert run_workers(str(tmp_path / "run"), 2, watch=kill_the_first) == [Dead(0, -signal.SIGKILL, "")]
    assert contents(tmp_path / "run") == contents(finished)


def test_a_worker_that_cannot_start_says_why(tmp_path):
    [dead] = run_workers(str(tmp_path / "nowhere"), 1)
    assert dead.code == 2
    assert "There is no run at" in str(dead)


def test_a_worker_that_crashes_is_not_taken_for_one_that_gave_up_blocks(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import solvable.lab.store as s\ndel s.Store\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), SOURCE]))
    [dead] = run_workers(str(tmp_path), 1)
    assert dead.code == 1
    assert "ImportError" in str(dead)


def test_a_block_that_fails_is_tried_three_times_and_does_not_stop_the_rest(finished, tmp_path, monkeypatch):
    planned(tmp_path / "run")
    bad = sorted(contents(finished))[7]
    sound = compute.compute_block

    def faulty(model, block):
        if sweep.block_id(block) == bad:
            raise FloatingPointError("no such luck")
        return sound(model, block)

    monkeypatch.setattr(compute, "compute_block", faulty)
    messages = []
    worked = work(tmp_path / "run", say=messages.append)
    total = len(contents(finished))
    assert (worked.computed, worked.failures, worked.left) == (total - 1, 3, 1)
    assert Store.open(tmp_path / "run").failed() == {bad: ["FloatingPointError: no such luck"] * 3}
    assert sum("no such luck" in sentence for sentence in messages) == 3
    state = status(tmp_path / "run")
    assert state.blocks == {"all": total, "done": total - 1, "failed": 1, "undone": 0}
    assert state.errors == {bad: "FloatingPointError: no such luck"}
    assert not state.complete
    assert work(tmp_path / "run").failures == 0  # it was given up
    assert work(tmp_path / "run", retry=True).failures == 3
    monkeypatch.undo()
    assert work(tmp_path / "run").computed == 0
    assert work(tmp_path / "run", retry=True).left == 0
    assert contents(tmp_path / "run") == contents(finished)


def test_damaged_blocks_are_computed_again(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    first, second = sorted(contents(finished))[:2]
    file = tmp_path / "run" / "blocks" / first[:2] / f"{first}.npz"
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    file.write_bytes(data)
    (tmp_path / "run" / "blocks" / second[:2] / f"{second}.npz").unlink()
    assert len(wrong(tmp_path / "run")) == 2
    worked = work(tmp_path / "run")
    assert (worked.computed, worked.healed, worked.left) == (2, 2, 0)
    assert wrong(tmp_path / "run") == []
    assert sv.open(tmp_path / "run").dataset().drop_attrs().identical(sv.open(finished).dataset().drop_attrs())


def test_a_worker_does_its_own_shard_first_and_then_helps_with_the_rest(finished, tmp_path):
    planned(tmp_path / "run")
    store = Store.open(tmp_path / "run")
    parts = [{row.block for row in share} for share in shares(Plan(store, plans(store)[0]).rows, 3)]
    assert all(parts)
    assert set.union(*parts) == set(contents(finished))
    work(tmp_path / "run", (1, 3), wanted=only(len(parts[1])))
    assert set(contents(tmp_path / "run")) == parts[1]
    assert work(tmp_path / "run", (0, 3)).left == 0
    assert contents(tmp_path / "run") == contents(finished)


def test_status_counts_blocks_and_cells_as_they_are(finished, tmp_path):
    planned(tmp_path / "run")
    total = len(contents(finished))
    assert status(tmp_path / "run").blocks == {"all": total, "done": 0, "failed": 0, "undone": total}
    assert status(tmp_path / "run").end is None
    worked = work(tmp_path / "run", wanted=only(5))
    assert (worked.computed, worked.left) == (5, total - 5)
    state, study = status(tmp_path / "run"), sv.open(tmp_path / "run")
    assert state.blocks == {"all": total, "done": 5, "failed": 0, "undone": total - 5}
    assert state.cells["all"] == len(study.cells())
    assert state.cells["undone"] == study.missing()
    assert state.rate > 0
    expected = datetime.now(UTC) + timedelta(seconds=state.cells["undone"] / state.rate)
    assert abs(datetime.fromisoformat(state.end) - expected) < timedelta(seconds=5)


def test_the_rate_is_that_of_the_latest_stretch_of_work():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(seconds=s) for s in (0, 1, 2, 3)]
    moments += [start + timedelta(days=1, seconds=2 * s) for s in range(6)]

    def entry(i, time):
        return Entry(f"{i:064x}", "", 0, time, {}, f"writer {i % 2}")

    listed = [(entry(i, moment.isoformat()), 10) for i, moment in enumerate(moments)]
    rate, last, writers, _ = pace([*listed, (entry(99, "yesterday"), 1000)])
    assert (rate, last, writers) == (5.0, moments[-1], 2)
    assert pace([])[:3] == (None, None, 0)


def test_a_study_that_is_not_the_latest_of_its_run_can_be_worked_on(tmp_path):
    first = sv.Study(sv.Perceptron(loss="square"), {"penalty": [0.1, 1.0]})
    second = sv.Study(sv.Perceptron(loss="square"), {"penalty": [0.2]})
    for study in (first, second):
        study.attach(tmp_path / "run")
        study.stored_plan()
    assert work(tmp_path / "run", study="study-0001").left == 0
    assert status(tmp_path / "run", "study-0001").complete
    assert status(tmp_path / "run").cells["undone"] == 1
    with pytest.raises(StoreError, match="has no study 'study-0003': it has study-0001, study-0002"):
        status(tmp_path / "run", "study-0003")


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0)])
def test_an_impossible_shard_is_refused(tmp_path, shard):
    with pytest.raises(sv.InvalidValue, match="is not of the form i/n"):
        work(tmp_path, shard)


def test_a_run_without_a_valid_study_or_plan_is_refused_in_one_sentence(tmp_path):
    store = Store.create(tmp_path / "run")
    with pytest.raises(StoreError, match="contains no study"):
        status(tmp_path / "run")
    store.write_document("study-0001", {"sizes": []})
    with pytest.raises(StoreError, match="has no plan"):
        status(tmp_path / "run")
    store.write_document(f"plan-{sweep.block_id({'study': {'sizes': []}})[:24]}", {"programs": 3})
    with pytest.raises(StoreError, match="is not a valid plan"):
        status(tmp_path / "run")


def test_a_worker_stops_when_its_parent_is_gone(monkeypatch):
    assert parent_lives()
    monkeypatch.setenv(launch.PARENT, str(os.getppid()))
    assert parent_lives()
    monkeypatch.setenv(launch.PARENT, "1" if os.getppid() != 1 else "2")
    assert not parent_lives()


def test_the_slurm_script_is_sound_bash_that_names_run_study_and_shards(tmp_path):
    script = slurm_script(str(tmp_path / "my run; $(touch oops)"), 12, study="study-0001")
    assert "#SBATCH --array=0-11\n" in script
    assert "export NPROC=1\n" in script
    # Run it, with the interpreter replaced by one that prints its arguments.
    printing = script.replace(f"exec {sys.executable}", "printf '%s\\n'")
    done = subprocess.run(["bash", "-euc", printing], cwd=tmp_path, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": "7"})  # fmt: skip
    words = ["-m", "solvable", "sweep", "work", f"{tmp_path}/my run; $(touch oops)", "--shard", "7/12"]
    assert done.stdout.splitlines() == [*words, "--study", "study-0001"], done.stderr
    assert not (tmp_path / "oops").exists()
    with pytest.raises(sv.InvalidValue, match="tasks = 0"):
        slurm_script("run", 0)


def test_a_run_of_an_older_format_is_refused_in_one_sentence(tmp_path):
    study = sv.Study(sv.Perceptron(loss="square", samples=0.5), {"penalty": [0.1, 1.0]})
    [block] = study.plan()
    program, _ = parts_of(block)
    name = plan_name(study.specification())
    one_document = {"blocks": [block], "earlier": []}
    old_blocks = {"programs": [program | {"format": 1}], "pieces": [], "index": [], "number": 0, "cells": 0}
    for number, head in enumerate((one_document, old_blocks)):
        run = tmp_path / str(number)
        study.attach(run).write_document(name, head)
        for use in (status, work, lambda path: sv.open(path).dataset(), lambda path: study.run(path, progress=False)):
            with pytest.raises(StoreError, match="has format 1 and was written by a version before the first release"):
                use(run)


def test_a_run_of_a_later_format_is_refused_too(tmp_path):
    study = sv.Study(sv.Perceptron(loss="square", samples=0.5), {"penalty": [0.1, 1.0]})
    study.attach(tmp_path / "run")
    for use in (lambda: study.stored_plan([b | {"format": 3} for b in study.plan()]), lambda: status(tmp_path / "run")):
        with pytest.raises(StoreError, match="has format 3 and was written by a later version"):
            use()


def test_a_split_into_blocks_of_an_older_format_is_refused_in_one_sentence(tmp_path):
    study = sv.Study(sv.Perceptron(loss="square", samples=0.5), {"penalty": [0.1, 1.0]})
    store = study.attach(tmp_path / "run")
    [(block, spec)] = study.stored_plan()
    store.write_document(split_name(block), {"block": block, "why": "", "blocks": [spec | {"format": 1}]})
    with pytest.raises(StoreError, match="has format 1 and was written by a version before the first release"):
        status(tmp_path / "run")


def test_an_invalid_split_is_refused_in_one_sentence(tmp_path):
    study = sv.Study(sv.Perceptron(loss="square", samples=0.5), {"penalty": [0.1, 1.0]})
    store = study.attach(tmp_path / "run")
    [(block, _)] = study.stored_plan()
    store.write_document(split_name(block), {"block": block, "why": "", "blocks": [{"format": 2}]})
    with pytest.raises(StoreError, match="is not a valid split of a block"):
        status(tmp_path / "run")


# --- export -------------------------------------------------------------------------------------------------------------


def test_csv_has_one_row_per_cell_and_gives_back_every_bit(finished, tmp_path):
    study = sv.open(finished)
    data = study.dataset()
    export(data, "csv", tmp_path / "new" / "data.csv")
    with (tmp_path / "new" / "data.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    simulated = [row for row in rows if row["kind"] == "simulated"]
    assert len(simulated) == 8 * 200
    assert len([row for row in rows if row["kind"] == "theory"]) == 8
    for row in simulated[::37]:
        cell = data.sel(penalty=float(row["penalty"]), size=int(row["size"]), seed=int(row["seed"]))
        assert float(row["norm"]) == cell.norm_simulated.item()
        assert row["converged"] == str(cell.converged_simulated.item())
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["data.csv"]


def test_csv_gives_observables_with_dimensions_rows_of_their_own(tmp_path):
    values = np.array([[0.1, np.nan], [1 / 3, 4.0]])
    data = xr.Dataset({"x_theory": ("loss", [1.5, 2.5]), "y_theory": (("loss", "time"), values)},
                      {"loss": ["a", "b"], "time": [0.0, 0.5]})  # fmt: skip
    export(data, "csv", tmp_path / "data.csv")
    rows = (tmp_path / "data.csv").read_text().splitlines()
    assert rows[:3] == ["kind,loss,time,x,y", "theory,a,,1.5,", "theory,b,,2.5,"]
    assert rows[3:] == ["theory,a,0.0,,0.1", "theory,a,0.5,,nan", f"theory,b,0.0,,{1 / 3!r}", "theory,b,0.5,,4.0"]


def test_netcdf_gives_back_the_dataset(finished, tmp_path):
    data = sv.open(finished).dataset()
    export(data, "netcdf", tmp_path / "data.nc")
    with xr.open_dataset(tmp_path / "data.nc", engine="scipy") as again:
        xr.testing.assert_equal(again.load(), data)
        assert again.attrs["study"] == data.attrs["study"]
        assert again.converged_simulated.dtype == bool


def test_an_impossible_export_is_refused_in_one_sentence(tmp_path, monkeypatch):
    data = xr.Dataset({"x_theory": ("loss", [1.5])})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(sv.SolvableError, match="zarr is not installed"):
        export(data, "zarr", tmp_path / "data.zarr")
    with pytest.raises(sv.SolvableError, match="is a folder"):
        export(data, "csv", tmp_path)
    with pytest.raises(sv.SolvableError, match="to = 'xlsx' is not one of csv, netcdf, zarr"):
        export(data, "xlsx", tmp_path / "data.xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(sv.SolvableError, match="Could not write"):
        export(data, "csv", tmp_path / "file" / "data.csv")
