"""`solvable sweep …`: output, JSON, exit codes, invalid input, start-up, interruption."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import solvable as sv
from commands import answer
from solvable.cli.app import main
from solvable.lab.launch import ONE_THREAD
from solvable.lab.status import status
from waiting import LONG, holding, until, with_path

SOURCE = str(Path(sv.__file__).parents[1])
STUDY = ("perceptron", "loss=square", "samples=0.5", "--over", "penalty=0.1,1", "--size", "16", "--seeds", "40")
TOTAL = {"all": 84, "done": 84, "failed": 0, "undone": 0}  # 2 × 40 simulations; 2 theories, nominal and realised


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("SOLVABLE_CACHE", "0")
    monkeypatch.setenv("EQX_ON_ERROR", "nan")
    for name, value in ONE_THREAD.items():  # the commands set them; they must not outlive the test
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("sweep") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"SOLVABLE_CACHE": "0", "EQX_ON_ERROR": "nan", **ONE_THREAD}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as stop:
            main(["sweep", "run", str(run), *STUDY])
    assert not stop.value.code
    return run


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_finished_sweep_reports_it_and_a_second_run_computes_nothing(capsys, run):
    code, out, _ = answer(capsys, "sweep", "status", str(run), "--json")
    result = json.loads(out)
    assert code == 0
    assert result["cells"] == TOTAL
    assert result["complete"]
    assert result["rate"] > 0
    before = sorted(p.name for p in (run / "manifests").iterdir())
    code, out, _ = answer(capsys, "sweep", "run", str(run), *STUDY, "--json")
    assert code == 0
    assert json.loads(out)["cells"] == TOTAL
    assert json.loads(out)["dead"] == []
    assert sorted(p.name for p in (run / "manifests").iterdir()) == before
    assert "84 of 84 done" in answer(capsys, "sweep", "status", str(run))[1]


def test_work_reports_its_blocks_and_verify_finds_damage(capsys, run):
    assert answer(capsys, "sweep", "verify", str(run))[0] == 0
    next((run / "blocks").glob("*/*.npz")).unlink()
    code, out, _ = answer(capsys, "sweep", "verify", str(run), "--json")
    assert code == 1
    assert [p["kind"] for p in json.loads(out)["problems"]] == ["missing"]
    code, out, err = answer(capsys, "sweep", "work", str(run), "--shard", "0/1", "--json")
    result = json.loads(out)
    assert (code, result["computed"], result["healed"], result["left"]) == (0, 1, 1, 0)
    assert "It will be recomputed." in err
    code, out, _ = answer(capsys, "sweep", "verify", str(run))
    assert (code, out) == (0, "0 problems, 0 leftovers of interrupted or busy writers\n")


def test_leftovers_are_no_problem_and_gc_removes_them(capsys, run):
    (run / "blocks" / f".tmp-{'0' * 32}").write_bytes(b"half a blo")
    code, out, _ = answer(capsys, "sweep", "verify", str(run), "--json")
    assert code == 0
    assert [p["leftover"] for p in json.loads(out)["problems"]] == [True]
    assert json.loads(answer(capsys, "sweep", "gc", str(run), "--json")[1])["removed"] == 0  # too young
    assert json.loads(answer(capsys, "sweep", "gc", str(run), "--older", "0", "--json")[1])["removed"] == 1
    assert json.loads(answer(capsys, "sweep", "verify", str(run), "--json")[1])["problems"] == []


def test_compact_moves_blocks_into_archives_that_every_command_reads(capsys, run, tmp_path):
    before = answer(capsys, "sweep", "export", str(run), "--to", "csv", "--out", str(tmp_path / "before.csv"))[0]
    code, out, _ = answer(capsys, "sweep", "compact", str(run), "--json")
    assert (before, code) == (0, 0)
    assert json.loads(out)["blocks"] == len(sv.open(run).plan())
    assert not list((run / "blocks").glob("*/*.npz"))
    assert answer(capsys, "sweep", "verify", str(run))[0] == 0
    assert json.loads(answer(capsys, "sweep", "status", str(run), "--json")[1])["complete"]
    assert json.loads(answer(capsys, "sweep", "work", str(run), "--json")[1])["computed"] == 0
    assert answer(capsys, "sweep", "export", str(run), "--to", "csv", "--out", str(tmp_path / "after.csv"))[0] == 0
    assert (tmp_path / "before.csv").read_bytes() == (tmp_path / "after.csv").read_bytes()
    assert json.loads(answer(capsys, "sweep", "gc", str(run), "--older", "0", "--json")[1])["removed"] == 0


def test_a_missing_gpu_is_reported_in_one_sentence(finished):
    environment = os.environ | {"PYTHONPATH": SOURCE, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "solvable", "sweep", "work", str(finished), "--device", "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, env=environment)
    assert done.returncode == 2
    assert done.stderr.endswith("solvable: device = 'gpu', but JAX finds no GPU.\n")
    assert "Traceback" not in done.stderr


def test_given_up_blocks_make_exit_code_one_until_a_retry_succeeds(capsys, tmp_path, monkeypatch):
    from solvable.lab import compute

    def broken(model, block):
        raise ArithmeticError("no such luck")

    monkeypatch.setattr(compute, "compute_block", broken)
    run = tmp_path / "run"
    code, out, _ = answer(capsys, "sweep", "run", str(run), *STUDY)
    assert code == 1
    assert "ArithmeticError: no such luck" in out
    assert f"solvable sweep retry {run}" in out
    assert answer(capsys, "sweep", "work", str(run))[0] == 1
    monkeypatch.undo()
    assert answer(capsys, "sweep", "retry", str(run))[0] == 0
    assert status(run).cells == TOTAL


def test_export_writes_files_that_others_read(capsys, run, tmp_path):
    pytest.importorskip("zarr")
    for to, name in (("csv", "a.csv"), ("netcdf", "a.nc"), ("zarr", "a.zarr")):
        code, out, _ = answer(capsys, "sweep", "export", str(run), "--to", to, "--out", str(tmp_path / name), "--json")
        assert code == 0
        assert json.loads(out)["missing"] == 0
    with (tmp_path / "a.csv").open(newline="") as file:
        assert sum(row["kind"] == "simulated" for row in csv.DictReader(file)) == 80
    assert (tmp_path / "a.nc").read_bytes()[:3] == b"CDF"
    import xarray as xr

    with xr.open_zarr(tmp_path / "a.zarr", consolidated=False) as again:
        xr.testing.assert_equal(again.load(), sv.open(run).dataset())
    assert not list(tmp_path.glob(".*part"))


def test_a_slurm_script_is_written_and_nothing_is_computed(capsys, tmp_path):
    words = ("sweep", "run", str(tmp_path / "run"), *STUDY)
    code, out, _ = answer(capsys, *words, "--slurm", str(tmp_path / "job.sh"), "--tasks", "2")
    assert code == 0
    assert f"sbatch {tmp_path}/job.sh" in out
    script = (tmp_path / "job.sh").read_text()
    assert '--shard "$SLURM_ARRAY_TASK_ID/2" --study study-0001' in script
    assert answer(capsys, *words, "--slurm", "-", "--tasks", "2")[1].rstrip() == script.rstrip()
    assert json.loads(answer(capsys, *words, "--slurm", "-", "--tasks", "2", "--json")[1])["script"] == script
    assert status(tmp_path / "run").cells["undone"] == 84


BAD = [
    ("sweep",),
    ("sweep", "nonsense"),
    ("sweep", "run", "RUN"),
    ("sweep", "run", "RUN", "perceptro"),
    ("sweep", "run", "RUN", "perceptron", "--over", "sample=1,2"),
    ("sweep", "run", "RUN", "perceptron", "--size", "20", "--seeds", "0"),
    ("sweep", "run", "RUN", "perceptron", "--workers", "-1"),
    ("sweep", "run", "RUN", "perceptron", "--workers", "many"),
    ("sweep", "run", "RUN", "perceptron", "--workers", "2", "--slurm", "job.sh"),
    ("sweep", "run", "FILE", "perceptron"),
    ("sweep", "work", "NOWHERE"),
    ("sweep", "work", "FILE"),
    ("sweep", "work", "RUN", "--shard", "2/2"),
    ("sweep", "work", "RUN", "--shard", "1"),
    ("sweep", "work", "RUN", "--shard", "a/b"),
    ("sweep", "work", "RUN", "--study", "study-0009"),
    ("sweep", "work", "RUN", "--study", "../../x"),
    ("sweep", "work", "RUN", "--memory", "much"),
    ("sweep", "work", "RUN", "--memory", "-1GB"),
    ("sweep", "work", "RUN", "--device", "abacus"),
    ("sweep", "run", "RUN", "perceptron", "--memory", "0"),
    ("sweep", "compact", "NOWHERE"),
    ("sweep", "compact", "FILE"),
    ("sweep", "retry", "NOWHERE"),
    ("sweep", "status", "NOWHERE"),
    ("sweep", "status", "EMPTY"),
    ("sweep", "verify", "NOWHERE"),
    ("sweep", "gc", "NOWHERE"),
    ("sweep", "gc", "RUN", "--older", "-1"),
    ("sweep", "gc", "RUN", "--older", "nan"),
    ("sweep", "export", "RUN", "--to", "xlsx", "--out", "x"),
    ("sweep", "export", "RUN", "--to", "csv"),
    ("sweep", "export", "RUN", "--to", "csv", "--out", "EMPTY"),
    ("sweep", "export", "RUN", "--to", "csv", "--out", "RUN/x.csv"),
    ("sweep", "export", "NOWHERE", "--to", "csv", "--out", "x"),
]


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_wrong_input_gives_one_sentence_and_code_two(capsys, words, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "FILE").write_text("dear diary")
    (tmp_path / "RUN").symlink_to(finished)
    code, out, err = answer(capsys, *words)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("solvable: ")
    assert err.count("\n") == 1
    code, out, _ = answer(capsys, *words, "--json")
    assert code == 2
    assert json.loads(out)["error"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["EMPTY", "FILE", "RUN"]


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["status", "RUN"], ["verify", "RUN"], ["gc", "RUN"]])
def test_help_status_verify_and_gc_do_not_import_jax(words, finished):
    program = "import sys; from solvable.cli.app import main\ntry: main(sys.argv[1:])\nfinally: assert 'jax' not in sys.modules"
    words = ["sweep", *(str(finished) if w == "RUN" else w for w in words)]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=LONG,
                          env=os.environ | {"PYTHONPATH": SOURCE})  # fmt: skip
    assert done.returncode == 0, done.stderr


def _children(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after[1]) == process and after[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc for the workers")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["control-c", "terminated"])
def test_an_interrupted_sweep_ends_its_workers_and_prints_how_to_resume(tmp_path, how):
    run = tmp_path / "run"
    words = ["sweep", "run", str(run), "perceptron", "loss=square", "samples=0.5", "--over", "penalty=0.1:1:40",
             "--size", "16", "--seeds", "40", "--workers", "2"]  # fmt: skip
    held, _ = holding(tmp_path / "site", after=1)
    parent = subprocess.Popen([sys.executable, "-m", "solvable", *words], stderr=subprocess.PIPE, text=True,
                              stdout=subprocess.PIPE, env=with_path(held, SOURCE))  # fmt: skip
    try:
        until(lambda: len(list((run / "blocks").glob("*/*.npz"))) == 2)
        workers = _children(parent.pid)
        assert len(workers) == 2
        parent.send_signal(how)
        _, err = parent.communicate(timeout=LONG)
    finally:
        parent.kill()
    assert parent.returncode == 1
    assert "Traceback" not in err
    assert f"Resume with: solvable sweep run {run} perceptron" in err
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    result = status(run)
    assert 0 < result.blocks["undone"] < result.blocks["all"]


def test_a_sweep_runs_the_arms_that_it_is_given_by_name(capsys, tmp_path):
    small = ("continual-digits", "first_stage=1", "second_stage=1", "intervals=2", "--size", "20", "--seeds", "2")
    code, out, _ = answer(capsys, "sweep", "run", tmp_path / "run", *small, "--arms", "shared,even replay", "--json")
    assert (code, json.loads(out)["cells"]["done"]) == (0, 4)
    study = sv.open(tmp_path / "run")
    assert list(study.arms) == ["shared", "even replay"]
    assert study.missing() == 0
    code, out, err = answer(capsys, "sweep", "run", tmp_path / "other", *small, "--arms", "even repaly")
    assert (code, out) == (2, "")
    assert err == "solvable: continual-digits has no arm 'even repaly'; did you mean 'even replay'?\n"
    assert not (tmp_path / "other").exists()
