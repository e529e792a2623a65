"""Blocks fit into memory: needed and available memory are known beforehand, and blocks that do not fit are split."""

import numpy as np
import pytest

import solvable as sv
from solvable.lab import compute, memory
from solvable.lab.devices import one_of
from solvable.lab.status import status
from solvable.lab.store import Store
from solvable.lab.stored_plans import Plan, plans
from solvable.lab.sweep import work


@pytest.mark.parametrize("text", ["", "much", "4 PB", "-1GB", "0", "nan", "1e99", "4G B", "inf"])
def test_an_invalid_amount_of_memory_is_refused(text):
    with pytest.raises(sv.InvalidValue, match="memory = "):
        memory.bytes_of(text)


def group(folder, limit, used, cache=0, version=2):
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")


def test_the_tightest_control_group_around_a_process_counts(tmp_path):
    root, membership = tmp_path / "cgroup", tmp_path / "told"
    group(root / "job", 8_000, 1_000, cache=500)
    group(root / "job" / "step", "max", 900)
    membership.write_text("0::/job/step\n")
    assert min(memory._of_groups(membership, root)) == 7_500
    group(root / "memory" / "slurm", 5_000, 4_500, version=1)
    group(root / "memory", 1 << 62, 10_000, version=1)
    membership.write_text("4:cpu,memory:/slurm\n0::/\n")
    assert list(memory._of_groups(membership, root)) == [500]
    membership.write_text("0::/nowhere\n")
    assert list(memory._of_groups(membership, root)) == []
    assert 0 < memory.available() < 1 << 50


def test_the_memory_budget_is_shared_by_the_workers_of_a_machine_unless_given(monkeypatch):
    monkeypatch.delenv("SOLVABLE_MEMORY", raising=False)
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    monkeypatch.setattr(memory, "available_on_device", lambda: None)
    assert memory.budget(workers=4) == 2_000
    assert memory.budget("3kB", workers=4) == 3_000
    monkeypatch.setenv("SOLVABLE_MEMORY", "4000")
    assert memory.budget(workers=4) == 4_000


def test_the_memory_of_a_program_is_known_before_it_runs_and_grows_with_its_lanes():
    study = sv.Study(
        sv.Perceptron(loss="square", samples=1.0), {"penalty": np.geomspace(0.1, 1, 4)}, sizes=[64], seeds=8
    )
    blocks = {b["kind"]: b for b in study.plan()}
    model = next(iter(study.variants().values()))
    few = compute.needed_memory(model, blocks["simulation"])
    many = compute.needed_memory(model, {**blocks["simulation"], "lanes": 4 * blocks["simulation"]["lanes"]})
    data = 4 * 64 * 64 * blocks["simulation"]["lanes"]  # the inputs alone, in float32
    assert data <= few < 40 * data
    assert 3 * few < many < 5 * few
    assert compute.needed_memory(model, blocks["theory"]) > 0


def test_a_block_larger_than_the_memory_it_may_take_is_split_and_gives_the_same_numbers(tmp_path, monkeypatch):
    study = sv.Study(sv.Perceptron(loss="square", samples=1.0), {"penalty": [0.1, 1.0]}, sizes=[32], seeds=16)
    study.run(tmp_path / "whole", progress=False)
    study.attach(tmp_path / "split")
    study.stored_plan()
    lines = []
    worked = work(tmp_path / "split", say=lines.append, most_memory="200kB")
    assert worked.split >= 1
    assert any("of memory, but the limit is 0.2" in sentence for sentence in lines)
    assert worked.left == 0
    assert status(tmp_path / "split").complete
    store = Store.open(tmp_path / "split")
    assert len(Plan(store, plans(store)[0])) > 2
    whole, split = sv.open(tmp_path / "whole").dataset(), sv.open(tmp_path / "split").dataset()
    for name in whole.data_vars:
        np.testing.assert_allclose(split[name], whole[name], rtol=2e-4, atol=1e-5, equal_nan=True)
    assert sv.open(tmp_path / "split").missing() == 0


@pytest.mark.parametrize("problem", [MemoryError("x"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8G")])
def test_running_out_of_memory_splits_a_block_and_goes_on(tmp_path, monkeypatch, problem):
    study = sv.Study(sv.Perceptron(loss="square"), {"penalty": np.geomspace(0.1, 1, 6)})
    study.attach(tmp_path / "run")
    study.stored_plan()
    sound = compute.compute_block

    def brittle(model, block):
        if block["lanes"] > 3:
            raise problem
        return sound(model, block)

    monkeypatch.setattr(compute, "compute_block", brittle)
    worked = work(tmp_path / "run")
    assert (worked.split, worked.computed, worked.failures, worked.left) == (1, 2, 0, 0)
    data = sv.open(tmp_path / "run").dataset()
    again = study.run(progress=False)
    np.testing.assert_allclose(data.test_loss_theory, again.test_loss_theory, rtol=1e-12)


def test_every_worker_of_a_machine_with_several_gpus_takes_its_own(tmp_path):
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    taken = [one_of(i, {}, str(tmp_path / "gpus")) for i in range(3)]
    assert [t["CUDA_VISIBLE_DEVICES"] for t in taken] == ["0", "1", "0"]
    assert one_of(1, {"CUDA_VISIBLE_DEVICES": ""}, str(tmp_path / "gpus")) == {}
    assert one_of(1, {}, str(tmp_path / "none")) == {}


def test_sizes_and_seeds_count_before_anything_is_listed():
    with pytest.raises(sv.InvalidValue, match="cells"):
        sv.Study(sv.Perceptron(), sizes=[50], seeds=10**12)
    with pytest.raises(sv.InvalidValue, match="cells"):
        sv.Study(sv.Perceptron(), sizes=list(range(10, 1000)), seeds=200_000)


def test_a_simulation_that_no_memory_holds_is_refused_before_it_allocates():
    study = sv.Study(sv.Perceptron(loss="square"), sizes=[1_000_000], seeds=1)
    with pytest.raises(sv.InvalidValue, match=r"size = 1000000 needs about .* GB of memory .* use a smaller size"):
        study.run(progress=False)


def test_a_size_whose_bytes_overflow_is_refused_without_compiling(monkeypatch):
    """XLA would end the process."""
    study = sv.Study(sv.Perceptron(loss="square", samples=1e4), sizes=[10_000_000], seeds=4)
    monkeypatch.setattr(compute, "simulation_program", None)
    block = next(b for b in study.plan() if b["kind"] == "simulation")
    assert compute.needed_memory(sv.Perceptron(loss="square"), block) > 1e18
    with pytest.raises(sv.InvalidValue, match=r"size = 10000000 needs about .* GB of memory .* use a smaller size"):
        study.run(progress=False)


def test_a_block_takes_as_many_lanes_as_fit_and_gives_the_same_numbers(monkeypatch):
    model = sv.Perceptron(loss="square", samples=1.0)
    study = sv.Study(model, {"penalty": [0.1, 1.0]}, sizes=[32], seeds=16)
    block = next(b for b in study.plan() if b["kind"] == "simulation")
    whole = study.compute(block)
    monkeypatch.setattr(compute, "LARGE", 0)
    monkeypatch.setenv("SOLVABLE_MEMORY", "200kB")
    assert 1 <= compute.fitting(model, block)["lanes"] < block["lanes"]
    np.testing.assert_allclose(study.compute(block)["test_loss"], whole["test_loss"], rtol=1e-12)
    monkeypatch.setenv("SOLVABLE_MEMORY", "1kB")
    with pytest.raises(sv.InvalidValue, match="size = 32"):
        study.compute(block)


def test_a_table_that_no_memory_holds_is_refused(monkeypatch):
    study = sv.Study(sv.Perceptron(loss="square"), {"samples": [0.5, 2.0]})
    study.run(progress=False)
    monkeypatch.setattr(memory, "available", lambda: 100)
    memory.check_room(1000, "this")  # too small to ask
    with pytest.raises(sv.InvalidValue, match=r"this takes 1 GB of memory, but only 1e-07 GB are free"):
        memory.check_room(1e9, "this")
