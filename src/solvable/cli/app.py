"""The command line. Nothing heavy is imported until a command needs it; `list` and `--help` never import JAX."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

from ..errors import InvalidValue, SolvableError
from .cluster import ClusterName, SlurmJobs, TlsFiles, with_sbatch
from .explore import COMMANDS as EXPLORE_COMMANDS
from .explore import Explore
from .forecast import COMMANDS as FORECAST_COMMANDS
from .forecast import Forecast
from .potts import COMMANDS as POTTS_COMMANDS
from .potts import Potts
from .text import COMMANDS as TEXT_COMMANDS
from .text import Text

Json = Annotated[bool, arg(help="Print one JSON object on standard output.")]
Model = Annotated[str, arg(metavar="MODEL", help="A model's id, as `solvable list` prints it.")]
Values = Annotated[
    tuple[str, ...],
    arg(metavar="NAME=VALUE", help="Fields of the model: a number, a word, a,b,c, a:b:n[:log], [[..]], or @file.npy."),
]
Over = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(metavar="NAME=RANGE", help="Sweep a field: a:b:n, a:b:n:log, or a,b,c. Repeat for a grid."),
]
Sizes = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(metavar="N", help="Size to simulate (a list a,b,c, or repeat); none: theory only."),
]
Seeds = Annotated[int, arg(metavar="S", help="Realisations of each cell.")]
Run = Annotated[Path, arg(metavar="RUN", help="Folder in which the study rests.")]
StudyName = Annotated[str, arg(metavar="NAME", help="Which study of the run, as study-0001 (default: the latest).")]
Memory = Annotated[str, arg(metavar="SIZE", help="Most memory of a block, as 4GB (default: a share of what is free).")]
Device = Annotated[Literal["", "cpu", "gpu"], arg(help="Where to compute (default: a GPU if JAX sees one).")]
Shard = Annotated[str, arg(metavar="I/N", help="Begin with this part of the blocks; then help with the others.")]


@dataclasses.dataclass
class List:
    """All models, one line each."""

    json: Json = False


@dataclasses.dataclass
class Show:
    """What a model is: fields, observables, references."""

    model: Positional[Model]
    json: Json = False


@dataclasses.dataclass
class Theory:
    """The exact prediction of a model."""

    model: Positional[Model]
    values: Positional[Values] = ()
    branches: Annotated[bool, arg(help="Every solution that is found, not only the one that is learnt.")] = False
    json: Json = False


@dataclasses.dataclass
class Simulate:
    """One realisation of finite size, with the theory beside it."""

    model: Positional[Model]
    values: Positional[Values] = ()
    size: Annotated[
        int, arg(metavar="N", help="Size of the realisation (0: the largest of the model's typical sizes).")
    ] = 0
    seed: Annotated[int, arg(metavar="S", help="Number of the realisation.")] = 0
    json: Json = False


@dataclasses.dataclass
class Study:
    """Theory and simulation over a grid, with the agreement measured; interrupt it and run it again."""

    model: Positional[Model]
    values: Positional[Values] = ()
    over: Over = ()
    size: Sizes = ()
    seeds: Seeds = 8
    out: Annotated[Path | None, arg(metavar="RUN", help="Folder in which the study rests and resumes.")] = None
    figure: Annotated[
        Path | None, arg(metavar="FILE", help="Where to draw it (default: RUN.png beside the folder).")
    ] = None
    json: Json = False


@dataclasses.dataclass
class Figure:
    """Draw a figure of a paper; without a name, list them."""

    name: Positional[Annotated[str, arg(metavar="NAME", help="The figure's name.")]] = ""
    quick: Annotated[bool, arg(help="A coarser version, within a minute.")] = False
    recompute: Annotated[bool, arg(help="Compute again what is kept with the package.")] = False
    out: Annotated[Path, arg(metavar="FOLDER", help="Where the picture and its data go.")] = Path("figures")
    json: Json = False


@dataclasses.dataclass
class Check:
    """The contract, the reference values and a small agreement study of models; all models if none is named."""

    models: Positional[Annotated[tuple[str, ...], arg(metavar="MODEL")]] = ()
    values: Annotated[Path | None, arg(metavar="FILE", help="Check only this file of reference cases.")] = None
    full: Annotated[bool, arg(help="Larger studies: more seeds and the largest sizes (minutes).")] = False
    corners: Annotated[bool, arg(help="Finer numerics at the corners of everything that is allowed (minutes).")] = False
    json: Json = False


@dataclasses.dataclass
class Cite:
    """BibTeX of a model, or of everything in a stored run."""

    what: Positional[Annotated[str, arg(metavar="MODEL|RUN")]]
    json: Json = False


@dataclasses.dataclass
class SweepRun:
    """Plan a study and compute it: here, with worker processes, on a dask cluster, or by a script for a Slurm array."""

    run: Positional[Run]
    model: Positional[Model]
    values: Positional[Values] = ()
    over: Over = ()
    size: Sizes = ()
    seeds: Seeds = 8
    workers: Annotated[
        int,
        arg(metavar="N", help="Workers, one thread each (0: this process; all of a cluster)."),
    ] = 0
    slurm: Annotated[
        Path | None, arg(metavar="SCRIPT", help="Compute nothing; write a script for `sbatch` there (-: print it).")
    ] = None
    tasks: Annotated[int, arg(metavar="N", help="Array tasks of the Slurm script, at most one per block.")] = 16
    memory: Memory = ""
    device: Device = ""
    cluster: ClusterName = ""
    tls: OmitArgPrefixes[TlsFiles] = dataclasses.field(default_factory=TlsFiles)
    jobs: OmitArgPrefixes[SlurmJobs] = dataclasses.field(default_factory=SlurmJobs)
    json: Json = False


@dataclasses.dataclass
class SweepWork:
    """Be one worker: compute what is undone in a run, beside any number of others, here or elsewhere."""

    run: Positional[Run]
    shard: Shard = "0/1"
    study: StudyName = ""
    memory: Memory = ""
    device: Device = ""
    json: Json = False


@dataclasses.dataclass
class SweepRetry:
    """Work, and give the blocks that were given up three more attempts."""

    run: Positional[Run]
    shard: Shard = "0/1"
    study: StudyName = ""
    memory: Memory = ""
    device: Device = ""
    json: Json = False


@dataclasses.dataclass
class SweepStatus:
    """What is done, failed and undone, how fast it goes and when it will end; others may be writing."""

    run: Positional[Run]
    study: StudyName = ""
    json: Json = False


@dataclasses.dataclass
class SweepVerify:
    """Read everything in a run and hold it against its hashes; exit code 1 if something is wrong."""

    run: Positional[Run]
    json: Json = False


@dataclasses.dataclass
class SweepExport:
    """Write what is done for other programs: csv (one row per cell), netcdf, or zarr."""

    run: Positional[Run]
    to: Annotated[Literal["csv", "netcdf", "zarr"], arg(help="Format.")]
    out: Annotated[Path, arg(metavar="FILE", help="Where it goes.")]
    study: StudyName = ""
    json: Json = False


@dataclasses.dataclass
class SweepGc:
    """Remove what killed writers and workers left: temporary files, claims, copies of archived blocks."""

    run: Positional[Run]
    older: Annotated[float, arg(metavar="SECONDS", help="Leave files that were touched since.")] = 3600.0
    json: Json = False


@dataclasses.dataclass
class SweepCompact:
    """Move many small blocks into few archives; others may read and write meanwhile."""

    run: Positional[Run]
    json: Json = False


@dataclasses.dataclass
class Sweep:
    """Studies that outgrow one process: many workers, one run."""

    action: (
        Annotated[SweepRun, subcommand("run")]
        | Annotated[SweepWork, subcommand("work")]
        | Annotated[SweepStatus, subcommand("status")]
        | Annotated[SweepVerify, subcommand("verify")]
        | Annotated[SweepRetry, subcommand("retry")]
        | Annotated[SweepExport, subcommand("export")]
        | Annotated[SweepCompact, subcommand("compact")]
        | Annotated[SweepGc, subcommand("gc")]
    )


Command = OmitSubcommandPrefixes[
    Annotated[List, subcommand("list")]
    | Annotated[Show, subcommand("show")]
    | Annotated[Theory, subcommand("theory")]
    | Annotated[Simulate, subcommand("simulate")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Sweep, subcommand("sweep")]
    | Annotated[Potts, subcommand("potts")]
    | Annotated[Text, subcommand("text")]
    | Annotated[Forecast, subcommand("forecast")]
    | Annotated[Figure, subcommand("figure")]
    | Annotated[Explore, subcommand("explore")]
    | Annotated[Check, subcommand("check")]
    | Annotated[Cite, subcommand("cite")]
]


def main(argv: list[str] | None = None) -> None:
    """Entry point of `solvable`: exit code 0, 1 (something did not hold) or 2 (wrong input)."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        from .._version import __version__

        print(f"solvable {__version__}")
        return
    command = _parsed(with_sbatch(words) or ["--help"])
    command = command.action if isinstance(command, (Sweep, Potts)) else command
    try:
        code = _RUN[type(command)](command)
    except SolvableError as problem:
        _complain(command, str(problem))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code)


def _parsed(words: list[str]) -> Any:
    """The command that the words mean; what the parser refuses is told in one sentence, like everything else."""
    refusal = io.StringIO()
    try:
        with contextlib.redirect_stderr(refusal):
            return tyro.cli(Command, prog="solvable", description=_ABOUT, args=words)  # type: ignore[arg-type]
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [line.strip("╭╮╰╯│─- \t") for line in refusal.getvalue().splitlines()]
        shown = [line for line in lines if line and not line.startswith("For full helptext")]
        # The first line is the box's title; it is repeated where it says enough by itself.
        sentence = " ".join(shown[1:] or shown).partition(" Argument helptext:")[0]
        if "--json" in words:
            print(json.dumps({"error": sentence}))
        print(f"solvable: {sentence} (see solvable --help)", file=sys.stderr)
        sys.exit(2)


_ABOUT = "Exactly solvable models of learning: theory and experiment on the same axis, with the agreement measured."


def _complain(command: Any, sentence: str) -> None:
    if command.json:
        print(json.dumps({"error": sentence}))
    print(f"solvable: {sentence}", file=sys.stderr)


def _print_json(value: Any) -> None:
    from ..contract.parse_values import json_ready

    print(json.dumps(json_ready(value), ensure_ascii=False))


def _table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; its words are anyone's (errors, file names, meanings), so that no bracket or colon means anything."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def _made(id: str, words: tuple[str, ...]) -> Any:
    from ..lab.jax_environment import configure

    configure()
    from ..contract.parse_values import assignments
    from ..registry import model_class

    return model_class(id).create(**assignments(words))


def _params(model: Any) -> dict[str, Any]:
    return {
        n: getattr(model, n) for n in model.fields() if n not in model._from_defaults and getattr(model, n) is not None
    }


def _run_list(command: List) -> int:
    from ..registry import listings

    lines = list(listings().values())
    if command.json:
        _print_json({"models": [line._asdict() for line in lines]})
    else:
        _table("", ["model", "family", "what"], [[line.id, line.family, line.sentence] for line in lines])
    return 0


def _run_show(command: Show) -> int:
    from ..contract.describe import describe
    from ..registry import model_class

    shown = describe(model_class(command.model))
    if command.json:
        _print_json(shown)
        return 0
    print(f"{shown['title']} ({shown['id']}, family {shown['family']})\n\n{shown['about']}\n")
    rows = [[f["name"], f["kind"], f["symbol"], f["default"], f["range"], f["meaning"]] for f in shown["fields"]]
    _table("Fields", ["name", "kind", "symbol", "default", "range", "meaning"], rows)
    print()
    rows = [[o["name"], " × ".join(o["dims"]), o["status"], o["when"], o["meaning"]] for o in shown["observables"]]
    _table("Observables", ["name", "dimensions", "status", "when", "meaning"], rows)
    print("\nReferences\n" + "\n".join(f"  {r}" for r in shown["references"]))
    return 0


def _run_theory(command: Theory) -> int:
    model = _made(command.model, command.values)
    outcome = model.branches() if command.branches else model.theory()
    if command.json:
        _print_json(
            {
                "model": model.id,
                "params": _params(model),
                "observables": dict(outcome.values),
                "status": outcome.status,
                "residual": outcome.residual,
                "coordinates": model.coordinates(),
            }
        )
    else:
        print(f"{model}\n{outcome}")
    return 0


def _run_simulate(command: Simulate) -> int:
    model = _made(command.model, command.values)
    size = command.size or type(model).typical_sizes[-1]
    outcome = model.simulate(command.seed, size)
    drawn = model.prepared(model.key(size, command.seed), size)
    theory = drawn.realised(size).theory() if model.has_theory else None
    if command.json:
        _print_json(
            {
                "model": model.id,
                "params": _params(model),
                "size": size,
                "seed": command.seed,
                "observables": dict(outcome.values),
                "status": outcome.status,
                "theory": dict(theory.values) if theory else None,
                "coordinates": model.coordinates(),
            }
        )
        return 0
    import numpy as np

    print(f"{model}, d = {size}, seed {command.seed}: {outcome.status}")
    rows = []
    for name in outcome:
        value = np.asarray(outcome[name])
        beside = np.asarray(theory[name]) if theory is not None and name in theory else None
        if value.ndim == 0:
            rows.append([name, f"{float(value):.6g}", "" if beside is None else f"{float(beside):.6g}"])
        else:
            gap = "" if beside is None else f"largest difference {np.nanmax(np.abs(value - beside)):.3g}"
            rows.append([name, f"{'×'.join(map(str, value.shape))} values", gap])
    _table("", ["observable", "simulated", "theory"], rows)
    return 0


def _study_of(command: Study | SweepRun) -> Any:
    """The study that the words of a command describe."""
    from ..contract.parse_values import values_of

    model = _made(command.model, command.values)
    from ..study import Study as Lab

    over: dict[str, Any] = {}
    for word in command.over:
        name, equals, text = word.partition("=")
        if not equals or not name or name in over:
            raise InvalidValue(f"--over {word!r} is not of the form name=range, or repeats a name.")
        over[name] = values_of(name, text)
    sizes = []
    for word in command.size:
        sizes += [s if isinstance(s, int) else _refuse_size(s) for s in values_of("size", word)]
    if sizes and command.seeds < 1:
        raise InvalidValue(f"seeds = {command.seeds} is not a whole number in [1, ∞): the realisations of each cell.")
    return Lab(model, over, sizes=sorted(sizes), seeds=command.seeds if sizes else 0)


def _run_study(command: Study) -> int:
    study = _study_of(command)
    model, over, sizes = next(iter(study.models.values())), study.over, study.sizes
    try:
        data = study.run(command.out, progress=None if not command.json else False)
    except KeyboardInterrupt:
        _interrupted(study, command)
        return 1
    agreement = study.agreement() if sizes and model.has_theory else None
    picture = command.figure or (command.out.with_name(command.out.name + ".png") if command.out else None)
    if picture is not None and (over or model.coordinates()):
        picture.parent.mkdir(parents=True, exist_ok=True)
        study.plot().savefig(picture)
    if command.json:
        _print_json(
            {
                "model": model.id,
                "params": _params(model),
                "out": str(command.out) if command.out else None,
                "cells": study.number_of_cells(),
                "missing": study.missing(),
                "agreement": None if agreement is None else {
                    "verdict": agreement.verdict,
                    "observables": {o: agreement.counts(o) for o in agreement.observables},
                },
                "theory": {n: data[n].values for n in data if str(n).endswith("_theory")},
                "figure": str(picture) if picture else None,
            }
        )  # fmt: skip
        return 0
    print(agreement if agreement is not None else data)
    if command.out:
        print(f"results in {command.out}; picture {picture}" if picture else f"results in {command.out}")
    return 0


def _refuse_size(value: Any) -> int:
    raise InvalidValue(f"size = {value!r} is not a whole number in [2, 1000000]: the dimension d of one realisation.")


def _interrupted(study: Any, command: Study) -> None:
    total = study.number_of_cells()
    if command.out is None:
        print("solvable: interrupted; nothing was kept, because no --out was given.", file=sys.stderr)
        return
    done = total - study.missing()
    print(f"solvable: interrupted; {done} of {total} cells are kept. Resume with: {_again()}", file=sys.stderr)


def _again() -> str:
    """The command as it was given."""
    return shlex.join(["solvable", *sys.argv[1:]])


def _run_figure(command: Figure) -> int:
    from ..figures import FIGURES, figure_named

    if not command.name:
        if command.json:
            _print_json({"figures": [dataclasses.asdict(f) for f in FIGURES]})
        else:
            _table("", ["figure", "model", "what"], [[f.name, f.model, f.sentence] for f in FIGURES])
        return 0
    if command.quick and command.recompute:
        raise InvalidValue("--quick and --recompute exclude each other.")
    figure_named(command.name)
    from ..lab.jax_environment import configure

    configure()
    from ..render.figures import draw, pieces_of

    try:
        files = draw(command.name, command.out, quick=command.quick, recompute=command.recompute)
    except KeyboardInterrupt:
        kept = f"what is done is kept. Resume with: {_again()}" if pieces_of(command.name, command.out).is_dir() else ""
        print(f"solvable: interrupted; {kept or 'nothing was kept.'}", file=sys.stderr, flush=True)
        os._exit(1)  # threads that still compute would be waited for
    if command.json:
        _print_json({"figure": command.name, "files": [str(f) for f in files]})
    else:
        print("\n".join(str(f) for f in files))
    return 0


def _run_check(command: Check) -> int:
    from ..lab.jax_environment import configure

    configure()
    from ..lab.check import check_models, check_values

    if command.values is not None:
        report = check_values(command.values, only=command.models)
    else:
        say = functools.partial(print, file=sys.stderr, flush=True)
        report = check_models(command.models, full=command.full, corners=command.corners, say=say)
    if command.json:
        _print_json({"passed": all(r.passed for r in report), "rows": [dataclasses.asdict(r) for r in report]})
    else:
        rows = [[r.model, r.part, "ok" if r.passed else "FAIL", r.seen] for r in report]
        _table("", ["model", "part", "", "seen"], rows)
        failed = sum(not r.passed for r in report)
        noisy = sum(r.inconclusive for r in report)
        more = f"; {noisy} comparisons are inconclusive" if noisy else ""
        print(f"{len(report) - failed} of {len(report)} checks hold{more}")
    return 0 if all(r.passed for r in report) else 1


def _run_cite(command: Cite) -> int:
    from ..registry import listings, model_class

    if command.what in listings():
        ids = [command.what]
    elif Path(command.what).is_dir():
        from ..lab.store import Store

        store = Store.open(command.what)
        studies = [store.read_document(n) for n in store.documents() if n.startswith("study-")]
        ids = sorted({m["id"] for s in studies for m in s["models"].values()})
        if not ids:
            raise SolvableError(f"the run at {command.what} holds no study.")
    else:
        from ..errors import nearest

        raise SolvableError(f"{command.what!r} is neither a model nor a run; {nearest(command.what, list(listings()))}")
    entries = {r.key: r.bibtex() for i in ids for r in model_class(i).references}
    if command.json:
        _print_json({"models": ids, "bibtex": list(entries.values())})
    else:
        print("\n\n".join(entries.values()))
    return 0


def _run_sweep(command: Any) -> int:
    from .sweep import RUN

    return RUN[type(command)](command)


_RUN = {
    **EXPLORE_COMMANDS,
    **FORECAST_COMMANDS,
    **POTTS_COMMANDS,
    **TEXT_COMMANDS,
    **dict.fromkeys((SweepRun, SweepWork, SweepRetry, SweepStatus, SweepVerify, SweepExport), _run_sweep),
    **dict.fromkeys((SweepCompact, SweepGc), _run_sweep),
    List: _run_list,
    Show: _run_show,
    Theory: _run_theory,
    Simulate: _run_simulate,
    Study: _run_study,
    Figure: _run_figure,
    Check: _run_check,
    Cite: _run_cite,
}
