"""Run the notebooks of all models and of the gallery in parallel processes; one line of JSON for each as it ends.

python -m benchmarks.run_notebooks OUT [--processes 8] [--seconds 240]

OUT gets `notebooks.jsonl` (name, seconds of processor and wall time, the error if there is one, what the cells printed)
and, where Matplotlib is installed, a folder of pictures as one archive. What has run without an error in OUT is not run again.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def names() -> list[str]:
    """Everything that can be run: gallery/NAME and models by id."""
    listing = json.loads((ROOT / "src/solvable/models/listing.json").read_text(encoding="utf-8"))
    scripts = sorted((ROOT / "docs" / "gallery").glob("*.py"))
    return [*(f"gallery/{script.stem}" for script in scripts), *(line["id"] for line in listing["models"])]


def ran(out: Path) -> set[str]:
    """What has run without an error before."""
    file = out / "notebooks.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {line["name"] for line in map(json.loads, lines) if not line["error"]}


def run_one(name: str, folder: Path) -> dict[str, Any]:
    """Run one notebook in this process."""
    draws = _matplotlib()
    from solvable.render.notebooks import from_script, run, to_ipynb
    from solvable.render.teach import teaching_cells

    wall, processor = time.time(), time.process_time()
    outcome: dict[str, Any] = {"name": name, "error": ""}
    try:
        if name.startswith("gallery/"):
            cells = from_script((ROOT / "docs" / f"{name}.py").read_text(encoding="utf-8"))
        else:
            import solvable as sv

            cells = teaching_cells(sv.create(name))
        cells = run(cells, dpi=60)
        outcome["printed"] = [o.content[:1500] for c in cells for o in c.outputs if o.kind != "png"]
        outcome["bytes"] = len(to_ipynb(cells))
        pictures = [o.content for c in cells for o in c.outputs if o.kind == "png"] if draws else []
        for k, picture in enumerate(pictures, start=1):
            (folder / f"{name.replace('/', '-')}-{k}.png").write_bytes(base64.b64decode(picture))
    except Exception as problem:
        outcome["error"] = str(problem)[:600]
    return outcome | {"wall": time.time() - wall, "processor": time.process_time() - processor}


def _matplotlib() -> bool:
    """Whether there is Matplotlib; if not, it is replaced by something that draws nothing."""
    try:
        import matplotlib  # noqa: F401

        return True
    except ImportError:
        from unittest.mock import MagicMock

        import solvable.study

        fake: Any = ModuleType("matplotlib")
        fake.use = lambda _: None
        fake.pyplot = MagicMock()
        fake.pyplot.get_fignums = list
        fake.pyplot.subplots = lambda *a, **k: (MagicMock(), (MagicMock(), MagicMock()))
        sys.modules |= {"matplotlib": fake, "matplotlib.pyplot": fake.pyplot}
        solvable.study.Study.plot = lambda self, *a, **k: MagicMock()  # type: ignore[method-assign]
        return False


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("out", type=Path)
    words.add_argument("--processes", type=int, default=8)
    words.add_argument("--seconds", type=float, default=240.0)
    words.add_argument("--only", default="", help="names separated by commas, in the order in which to run them")
    words.add_argument("--one", default="")
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    pictures = given.out / "pictures"
    pictures.mkdir(exist_ok=True)
    if given.one:
        print(json.dumps(run_one(given.one, pictures)))
        return
    wanted = given.only.split(",") if given.only else names()
    waiting = [name for name in wanted if name not in ran(given.out)]
    running: dict[str, subprocess.Popen[str]] = {}
    end, threads = time.time() + given.seconds, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environment = {**os.environ, **threads, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "MPLBACKEND": "agg"}
    with (given.out / "notebooks.jsonl").open("a", encoding="utf-8") as log:
        while (waiting or running) and time.time() < end:
            while waiting and len(running) < given.processes:
                name = waiting.pop(0)
                command = [sys.executable, "-m", "benchmarks.run_notebooks", str(given.out), "--one", name]
                running[name] = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
                )
            for name, process in list(running.items()):
                if process.poll() is not None:
                    printed, complained = process.communicate()
                    line = printed.strip().splitlines()[-1:] or [json.dumps({"name": name, "error": complained[-600:]})]
                    print(line[0], file=log, flush=True)
                    del running[name]
            time.sleep(0.2)
        for name, process in running.items():
            process.kill()
            print(json.dumps({"name": name, "error": "not finished in time"}), file=log, flush=True)
        for name in waiting:
            print(json.dumps({"name": name, "error": "not started in time"}), file=log, flush=True)
    with tarfile.open(given.out / "pictures.tar", "w") as archive:
        archive.add(pictures, "pictures")


if __name__ == "__main__":
    main()
