"""Studies: grid, plan, store, resume, dataset, agreement."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import solvable as sv
from solvable.lab.agreement import compare, holm, judge
from solvable.lab.planning import pad_lengths
from solvable.lab.store import Store
from waiting import LONG

RIDGE = sv.Perceptron(loss="square", penalty=0.5)


def small(**changes):
    options = {"over": {"samples": [0.5, 1.0, 2.0]}, "sizes": [20, 40], "seeds": 4} | changes
    return sv.Study(RIDGE, **options)


def test_the_dataset_is_labelled_and_theory_is_evaluated_at_the_realised_ratio(tmp_path):
    study = small(over={"samples": [0.52, 2.0]})
    data = study.run(tmp_path / "run", progress=False)
    assert data.test_error_simulated.dims == ("samples", "size", "seed")
    assert data.test_error_theory.dims == ("samples",)
    assert data.test_error_expected.dims == ("samples", "size")
    at_half = RIDGE.replace(samples=0.5).theory().test_error  # 10 of 20 rows, where 0.52 was requested
    assert data.test_error_expected.sel(samples=0.52, size=20) == at_half
    assert data.test_error_theory.sel(samples=0.52) == RIDGE.replace(samples=0.52).theory().test_error
    assert data.attrs["jax"]
    assert json.loads(data.attrs["study"])["sizes"] == [20, 40]


def test_a_cell_of_a_study_is_the_realisation_that_simulate_draws(tmp_path):
    data = small().run(progress=False)
    alone = RIDGE.replace(samples=2.0).simulate(3, 40)
    cell = data.sel(samples=2.0, size=40, seed=3)
    np.testing.assert_allclose(cell.overlap_simulated, alone.overlap, rtol=1e-5)  # float32, other padding


def test_a_stored_study_opens_with_its_results_and_resumes_with_nothing_to_do(tmp_path):
    study = small()
    data = study.run(tmp_path / "run", progress=False)
    again = sv.open(tmp_path / "run")
    assert again.missing() == 0
    assert again.dataset().drop_attrs().identical(data.drop_attrs())
    before = set(Store.open(tmp_path / "run").done())
    assert sv.open(tmp_path / "run").run(tmp_path / "run", progress=False).drop_attrs().identical(data.drop_attrs())
    assert set(Store.open(tmp_path / "run").done()) == before
    assert Store.open(tmp_path / "run").verify() == []


def test_an_extended_study_computes_only_new_cells(tmp_path):
    first = small().run(tmp_path / "run", progress=False)
    more = small(seeds=6, over={"samples": [0.5, 0.7, 1.0, 2.0]})
    more.attach(tmp_path / "run")
    cells = len(more.cells())
    assert 0 < more.missing() < cells
    done = len(Store.open(tmp_path / "run").done())
    data = more.run(tmp_path / "run", progress=False)
    assert more.missing() == 0
    kept = data.norm_simulated.sel(samples=[0.5, 1.0, 2.0], seed=range(4))
    np.testing.assert_array_equal(kept, first.norm_simulated)
    assert len(Store.open(tmp_path / "run").done()) > done


def test_choices_arms_and_several_models_become_dimensions():
    study = sv.Study(
        {"weak": RIDGE, "strong": RIDGE.replace(penalty=5.0)},
        {"teacher": ["sign", "linear"], "samples": [0.5, 2.0]},
        arms={"clean": {}, "noisy": {"noise": 1.0}},
    )
    data = study.run(progress=False)
    assert data.norm_theory.dims == ("model", "arm", "teacher", "samples")
    one = RIDGE.replace(penalty=5.0, noise=1.0, teacher="linear", samples=2.0).theory()
    assert data.norm_theory.sel(model="strong", arm="noisy", teacher="linear", samples=2.0) == one.norm
    assert np.isnan(data.test_error_theory.sel(teacher="linear")).all()
    assert np.isfinite(data.test_error_theory.sel(teacher="sign")).all()


def test_choices_that_go_together_may_be_swept_together_and_others_are_refused():
    base = sv.Perceptron(loss="logistic")
    assert len(sv.Study(base, {"loss": ["square"], "teacher": ["sign", "linear"]}).variants()) == 2
    with pytest.raises(sv.InvalidValue, match="needs labels ±1"):
        sv.Study(base, {"loss": ["square", "hinge"], "teacher": ["sign", "linear"]})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"over": {"sample": [1]}}, "perceptron has no field 'sample'"),
        ({"over": {"samples": [1, -1]}}, r"samples\[1\] = -1 is outside its range"),
        ({"over": {"samples": []}}, "has no values"),
        ({"over": {"samples": [1, 1]}}, "repeated values"),
        ({"sizes": [40, 20], "seeds": 1}, "must be increasing"),
        ({"sizes": [40]}, "both sizes and seeds"),
        ({"sizes": [1], "seeds": 1}, "size = 1 is not a whole number"),
        ({"sizes": [10], "seeds": [-1]}, "seed = -1 is not a whole number"),
        ({"numerics": {"node": 2}}, "numerics has no setting 'node'"),
        ({"over": {"loss": ["square", "hing"]}}, "loss = 'hing' is not one of"),
    ],
)
def test_an_invalid_study_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(sv.SolvableError, match=sentence):
        sv.Study(RIDGE, **options)


def test_a_run_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear diary")
    with pytest.raises(sv.SolvableError, match="contains other files"):
        small().run(tmp_path, progress=False)


def test_pad_lengths_cover_all_counts_with_few_programs():
    counts = [round(a * 400) for a in np.geomspace(0.2, 8, 60)]
    lengths = pad_lengths(counts)
    assert len(lengths) == 3
    assert max(counts) in lengths
    padded = sum(min(n for n in lengths if n >= c) for c in counts)
    assert padded < 1.6 * sum(counts)


WORKER = """
import sys, numpy as np, solvable as sv
study = sv.Study(sv.Perceptron(loss="square", penalty=0.5), {"samples": np.linspace(0.3, 3, 40)}, sizes=[20, 30], seeds=12)
if sys.argv[2:]:  # from the fifth block on it waits to be killed
    import itertools, time
    from solvable.lab import compute
    real, number = compute.compute_block, itertools.count()
    compute.compute_block = lambda *said: real(*said) if next(number) < 4 else time.sleep(600)
study.run(sys.argv[1], progress=False)
"""


def _killed_and_resumed(folder: Path, kills: int, rng: np.random.Generator) -> int:
    """Run the worker and kill it with SIGKILL at random moments; return how many kills hit a running worker."""
    environment = os.environ | {"PYTHONPATH": str(Path(sv.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    hits = 0
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", WORKER, str(folder), "wait"], env=environment)
        manifests = folder / "manifests"
        begun, seen = time.time(), sum(f.stat().st_size for f in manifests.glob("*")) if manifests.is_dir() else 0
        while process.poll() is None and time.time() - begun < LONG:  # wait until it writes, then strike at random
            size = sum(f.stat().st_size for f in manifests.glob("*")) if manifests.is_dir() else 0
            if size > seen:
                time.sleep(rng.uniform(0, 0.03))
                break
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            hits += 1
        process.wait()
    subprocess.run([sys.executable, "-c", WORKER, str(folder)], env=environment, check=True, timeout=LONG)
    return hits


def _same_as_uninterrupted(tmp_path: Path, kills: int) -> int:
    hits = _killed_and_resumed(tmp_path / "killed", kills, np.random.default_rng(kills))
    environment = os.environ | {"PYTHONPATH": str(Path(sv.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", WORKER, str(tmp_path / "calm")], env=environment, check=True, timeout=LONG)
    one, two = Store.open(tmp_path / "killed"), Store.open(tmp_path / "calm")
    assert {b: e.sha256 for b, e in one.done().items()} == {b: e.sha256 for b, e in two.done().items()}
    assert [p for p in one.verify() if not p.leftover] == []
    return hits


def test_a_study_killed_and_resumed_is_bit_identical_to_an_uninterrupted_one(tmp_path):
    assert _same_as_uninterrupted(tmp_path, kills=2) >= 1


def test_a_study_killed_twenty_times_is_bit_identical_to_an_uninterrupted_one(tmp_path):
    assert _same_as_uninterrupted(tmp_path, kills=20) >= 10


# --- verdicts -----------------------------------------------------------------------------------------------------------


def _verdict(amplitude=0.0, offset=0.0, noise=0.01, power=1.0, sizes=(100, 200, 400), seeds=20, rows=20):
    rng = np.random.default_rng(1)
    n = np.asarray(sizes, float)
    expected = np.ones((rows, len(n), seeds))
    drift = offset + amplitude * n**-power
    simulated = expected + drift[None, :, None] + noise * rng.normal(size=expected.shape)
    table = judge(compare("x", [{"i": i} for i in range(rows)], simulated, expected, n.astype(int), power=1.0))
    return [r.verdict for r in table]


def test_agreement_verdicts_match_the_deviation():
    assert set(_verdict()) == {"agree"}
    assert set(_verdict(noise=0.5)) == {"inconclusive"}
    assert set(_verdict(amplitude=8.0)) == {"finite-size"}
    assert set(_verdict(offset=0.05)) == {"disagree"}
    assert set(_verdict(amplitude=0.8, power=0.2)) == {"disagree"}  # falls, but not as declared


def test_false_alarms_stay_below_the_level_over_the_whole_table():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(100):
        simulated = rng.normal(size=(50, 2, 8))
        rows = judge(compare("x", [{}] * 50, simulated, np.zeros((50, 2, 8)), np.array([10, 20]), power=1.0))
        alarms += any(r.verdict in ("disagree", "finite-size") for r in rows)
    assert alarms <= 12  # 5 expected; 12 has probability below 0.5 %


def test_holm_steps_down():
    assert holm([0.01, 0.02, 0.03, 0.04], 0.05) == [True, False, False, False]
    assert holm([0.01, 0.012, 0.016, 0.04], 0.05) == [True, True, True, True]


def test_a_fraction_equal_in_every_seed_is_not_infinitely_certain():
    zeros = np.zeros((1, 1, 8))
    rows = compare("x", [{}], zeros, zeros + 1e-4, np.array([100]), power=1.0, counted=np.array([[50]]))
    assert judge(rows)[0].verdict == "inconclusive"


def test_an_infinite_value_leaves_the_errors_of_other_points_as_they_are():
    expected = np.ones((2, 2, 8))
    simulated = expected + 0.1 + 0.01 * np.random.default_rng(1).normal(size=expected.shape)
    alone = compare("x", [{}], simulated[:1], expected[:1], np.array([10, 20]), power=1.0)[0]
    expected[1] = simulated[1] = np.inf
    beside = compare("x", [{}, {}], simulated, expected, np.array([10, 20]), power=1.0)[0]
    assert beside == alone
    assert abs(beside["z"]) > 10


def test_cells_that_did_not_converge_are_undefined_not_averaged():
    simulated = np.ones((1, 2, 4))
    simulated[0, 1, 2] = np.nan
    assert (
        judge(compare("x", [{}], simulated, np.ones((1, 2, 4)), np.array([10, 20]), power=1.0))[0].verdict
        == "undefined"
    )


def test_a_study_without_a_sweep_draws_observables_with_their_own_dimension():
    """Single numbers beside a curve have no axis to be drawn along and are left out."""
    study = sv.Study(sv.ManyBodyBias(sites=3, colours=2, bodies=2, depth=0), sizes=[50], seeds=2)
    study.run(progress=False)
    figure = study.plot()
    assert [axis.get_ylabel().split(" $")[0] for axis in figure.axes] == ["floor"]


@pytest.mark.parametrize(
    "model", [sv.Perceptron(loss="square"), sv.SoftCommittee(times=[0.0, 1.0])], ids=["counts", "curves"]
)
def test_a_study_of_one_point_holds_the_theory_of_the_model(model):
    data = sv.Study(model, sizes=[20, 40], seeds=2).run(progress=False)
    theory = model.theory()
    name = "test_loss"
    np.testing.assert_allclose(data[f"{name}_theory"], theory[name], rtol=1e-12)
    assert data[f"{name}_expected"].dims[0] == "size"
    np.testing.assert_allclose(data[f"{name}_expected"].sel(size=40), theory[name], rtol=1e-12)


# --- the dataset is assembled once per change, and only the study changes it ----------------------------------------------


@pytest.fixture
def assemblies(monkeypatch):
    """How often datasets were assembled."""
    from solvable.lab import dataset

    real, number = dataset.assemble, []
    monkeypatch.setattr(dataset, "assemble", lambda *words: number.append(1) or real(*words))
    return number


def test_run_agreement_and_plot_assemble_the_dataset_once(tmp_path, assemblies):
    study = small()
    data = study.run(tmp_path / "run", progress=False)
    study.agreement()
    study.plot("test_loss")
    assert study.dataset().identical(data)
    study.run(tmp_path / "run", progress=False)
    assert len(assemblies) == 1


def test_blocks_committed_by_others_are_in_the_next_dataset(tmp_path, assemblies):
    small().run(tmp_path / "run", progress=False)
    more = small(seeds=6)
    more.attach(tmp_path / "run")
    before = more.dataset()
    assert np.isnan(before.norm_simulated.sel(seed=5)).all()
    small(seeds=6).run(tmp_path / "run", progress=False)
    after = more.dataset()
    assert np.isfinite(after.norm_simulated.sel(seed=5)).all()
    assert more.dataset(copy=False) is more.dataset(copy=False)
    assert len(assemblies) == 4  # before, after, and by the two that ran


def test_changing_a_returned_dataset_leaves_the_study_unchanged():
    study = small()
    data = study.run(progress=False)
    sound = data.copy(deep=True)
    data["norm_simulated"][:] = -1.0
    data["norm_simulated"].attrs["meaning"] = "changed"
    data.attrs["study"] = "changed"
    del data["overlap_simulated"]
    assert study.dataset().identical(sound)
    with pytest.raises(ValueError, match="read-only"):
        study.dataset(copy=False)["norm_simulated"].values[:] = -1.0


def test_only_its_own_file_uses_private_names_of_a_study():
    source = Path(sv.__file__).parent
    private = {n for n in {**vars(sv.Study), **vars(small())} if n.startswith("_") and not n.startswith("__")}
    assert "_variant" in private
    used = re.compile(rf"(?<!\bself)(?<!\bcls)\.({'|'.join(sorted(private))})\b")
    users = {str(file.relative_to(source)): used.findall(file.read_text()) for file in source.rglob("*.py")}
    assert [(file, names) for file, names in users.items() if names and file != "study.py"] == []
