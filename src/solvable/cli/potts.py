"""The commands `solvable potts …`. Heavy modules are imported only when one of them runs."""

from __future__ import annotations

import dataclasses
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg, subcommand

from ..errors import InvalidValue
from .common import Json, print_json, print_table, say

Folder = Annotated[Path, arg(metavar="FOLDER", help="Folder written by `solvable potts fit --out`.")]
Separation = Annotated[int, arg(metavar="D", help="Only pairs at least this far apart along the sequence.")]
Top = Annotated[int, arg(metavar="N", help="Number of contacts to print (0: as many as sites).")]
UnknownLetters = Annotated[Literal["refuse", "gap"], arg(help="What to do with letters outside the alphabet.")]
InsertColumns = Annotated[
    Literal["keep", "drop"], arg(help="Lower case: read as upper case, or leave out as inserts (A2M, A3M).")
]


@dataclasses.dataclass
class Fit:
    """Fit a Potts model to aligned sequences, print the coupled sites, and store the model in a folder."""

    family: Positional[Annotated[Path, arg(metavar="FAMILY.fasta", help="Aligned sequences in FASTA format.")]]
    method: Annotated[
        Literal["dense", "factored"], arg(help="All couplings free, or attention: maps of sites × matrices of letters.")
    ] = "dense"
    heads: Annotated[int, arg(metavar="H", help="Heads of the factored attention.")] = 1
    attention: Annotated[Literal["free", "softmax"], arg(help="Maps of the factored attention.")] = "free"
    alphabet: Annotated[str, arg(metavar="NAME|LETTERS", help="protein, rna, dna, or the letters, as in ACGU-.")] = (
        "protein"
    )
    penalty: Annotated[
        float | None,
        arg(metavar="λ", help="Penalty (λ/2)·squares added to the sum over sequences (default 0.2·(sites − 1))."),
    ] = None
    threshold: Annotated[
        float,
        arg(
            metavar="SHARE",
            help="Sequences with this share of equal sites share one unit of weight (0: no reweighting).",
        ),
    ] = 0.8
    unknown: UnknownLetters = "refuse"
    inserts: InsertColumns = "keep"
    out: Annotated[
        Path | None, arg(metavar="FOLDER", help="Folder for the model; its contact map goes to FOLDER.png.")
    ] = None
    top: Top = 0
    separation: Separation = 1
    seed: Annotated[int, arg(metavar="S", help="Random seed of the initial values of the factored fit.")] = 0
    tolerance: Annotated[float, arg(metavar="T", help="Stop at |gradient| ≤ T·max(1, |parameters|).")] = 1e-3
    iterations: Annotated[int, arg(metavar="N", help="Largest number of iterations.")] = 1000
    json: Json = False


@dataclasses.dataclass
class Contacts:
    """Print the most strongly coupled pairs of sites of a stored model."""

    folder: Positional[Folder]
    top: Top = 0
    separation: Separation = 1
    json: Json = False


@dataclasses.dataclass
class Sample:
    """Draw new sequences from a stored model by Gibbs sampling; exit code 1 if the chains have not mixed."""

    folder: Positional[Folder]
    number: Annotated[int, arg(metavar="N", help="How many.")]
    out: Annotated[Path, arg(metavar="FILE.fasta", help="File for the sequences.")]
    seed: Annotated[int, arg(metavar="S", help="Random seed.")] = 0
    sweeps: Annotated[int, arg(metavar="N", help="Largest number of sweeps per chain.")] = 4096
    json: Json = False


@dataclasses.dataclass
class Energies:
    """Print the energy of each sequence of a FASTA file; lower is more typical of the family."""

    folder: Positional[Folder]
    file: Positional[Annotated[Path, arg(metavar="FILE.fasta")]]
    unknown: UnknownLetters = "refuse"
    inserts: InsertColumns = "keep"
    json: Json = False


@dataclasses.dataclass
class Potts:
    """Potts models of your own aligned sequences: contacts, energies, new sequences."""

    action: (
        Annotated[Fit, subcommand("fit")]
        | Annotated[Contacts, subcommand("contacts")]
        | Annotated[Sample, subcommand("sample")]
        | Annotated[Energies, subcommand("energies")]
    )


def _fit(command: Fit) -> int:
    from ..tools.alignments import alphabet_named, read_fasta, write_whole

    letters = alphabet_named(command.alphabet)
    if command.top < 0 or command.separation < 1:
        raise InvalidValue(
            f"top = {command.top} and separation = {command.separation} are not whole numbers ≥ 0 and ≥ 1."
        )
    if not 0 <= command.threshold <= 1:
        raise InvalidValue(f"threshold = {command.threshold} is not in [0, 1].")
    # All input is checked before JAX is imported and before anything is written.
    read_fasta(command.family, letters, unknown=command.unknown, inserts=command.inserts, least=2)
    picture = None
    if command.out is not None:
        from ..tools.potts import refuse_occupied

        refuse_occupied(command.out)
        picture = command.out.with_name(command.out.name + ".png")
        refuse_occupied(picture)
    from ..lab.jax_environment import configure

    configure()
    from ..tools import potts

    try:
        with _progress(not command.json) as report:
            found = potts.fit(
                command.family,
                command.alphabet,
                method=command.method,
                heads=command.heads,
                attention=command.attention,
                penalty=command.penalty,
                reweight=command.threshold or None,
                unknown=command.unknown,
                inserts=command.inserts,
                seed=command.seed,
                tolerance=command.tolerance,
                iterations=command.iterations,
                report=report,
            )
        if command.out is not None and picture is not None:
            drawn = io.BytesIO()
            found.plot_contacts(separation=command.separation).savefig(drawn, format="png")
            found.save(command.out)
            write_whole(picture, drawn.getvalue())
    except KeyboardInterrupt:
        say("solvable: interrupted; nothing was written.")
        return 1
    best = found.contacts(command.separation, command.top or found.sites)
    if command.json:
        summary = {
            "contacts": [c._asdict() for c in best],
            "sites": found.sites,
            "alphabet": letters.letters,
            **found.about,
        }
        print_json({**summary, "out": _text(command.out), "figure": _text(picture)})
    else:
        print(found)
        summary = found.about
        print(
            f"loss {summary['loss']:.4f} per site after {summary['iterations']} iterations, residual {summary['residual']:.1e}\n"
        )
        _show(best)
        if command.out is not None:
            print(f"\nmodel in {command.out}; picture {picture}")
    if not found.converged:
        say(f"solvable: the fit has not converged (residual {found.about['residual']:.1e}): use more --iterations.")
    return 0 if found.converged else 1


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


@contextmanager
def _progress(show: bool) -> Iterator[Callable[[int, float, float], None]]:
    """Show the progress of a fit in one line on a terminal.

    Ctrl-C stops the fit between two evaluations: interrupting a running computation can crash the process.
    """
    interrupted = []

    def on_interrupt(*_: Any) -> None:
        interrupted.append(True)
        signal.signal(signal.SIGINT, before)  # a second Ctrl-C stops at once
        say("solvable: stopping after this evaluation …")

    def check_interrupt(*_: Any) -> None:
        if interrupted:
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()  # Python delivers signals to the main thread only
    before = signal.getsignal(signal.SIGINT)
    if in_main:
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        if not (show and sys.stderr.isatty()):
            yield check_interrupt
            return
        from rich.console import Console

        with Console(stderr=True).status("reading") as line:

            def report(iterations: int, objective: float, residual: float) -> None:
                check_interrupt()
                line.update(f"iteration {iterations}, objective {objective:.6g}, residual {residual:.1e}")

            yield report
    finally:
        if in_main:
            signal.signal(signal.SIGINT, before)


def _show(contacts: list[Any]) -> None:
    print_table("", ["site", "site", "score"], [[str(c.i), str(c.j), f"{c.score:.4f}"] for c in contacts])


def _contacts(command: Contacts) -> int:
    from ..tools.potts import load

    found = load(command.folder)
    if command.top < 0:
        raise InvalidValue(f"top = {command.top} is not a whole number in [0, ∞).")
    best = found.contacts(command.separation, command.top or found.sites)
    if command.json:
        print_json({"contacts": [c._asdict() for c in best], "sites": found.sites, **found.about})
    else:
        print(found)
        _show(best)
    return 0


def _sample(command: Sample) -> int:
    import warnings

    from ..tools.alignments import write_fasta
    from ..tools.potts import load, refuse_occupied

    if not 1 <= command.number <= 10_000_000 or not 64 <= command.sweeps <= 1_000_000 or command.seed < 0:
        raise InvalidValue(
            f"number = {command.number}, sweeps = {command.sweeps} and seed = {command.seed} are not whole numbers in "
            "[1, 10000000], [64, 1000000] and [0, ∞)."
        )
    found = load(command.folder)
    refuse_occupied(command.out)
    from ..lab.jax_environment import configure

    configure()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reported below in one sentence
            drawn = found.sample(command.number, command.seed, most_sweeps=command.sweeps)
        names = [f"sample-{k + 1}" for k in range(len(drawn.sequences))]
        write_fasta(command.out, drawn.sequences, found.alphabet, names)
    except KeyboardInterrupt:
        say("solvable: interrupted; nothing was written.")
        return 1
    if command.json:
        print_json(
            {
                "out": str(command.out), "number": len(names), "r_hat": drawn.r_hat, "mixed": drawn.mixed,
                "effective_sweeps": drawn.effective_sweeps, "sweeps": drawn.sweeps,
            }
        )  # fmt: skip
    else:
        print(f"{len(names)} sequences in {command.out} after {drawn.sweeps} sweeps, R-hat {drawn.r_hat:.3f}")
    if not drawn.mixed:
        say(
            f"solvable: the chains have not mixed (R-hat {drawn.r_hat:.3f}): the samples are biased; use more --sweeps."
        )
    return 0 if drawn.mixed else 1


def _energies(command: Energies) -> int:
    from ..tools.alignments import read_fasta
    from ..tools.potts import load

    found = load(command.folder)
    read = read_fasta(command.file, found.alphabet, unknown=command.unknown, inserts=command.inserts)
    if read.sequences.shape[1] != found.sites:
        raise InvalidValue(
            f"{command.file}: the sequence of line {read.lines[0]} has {read.sequences.shape[1]} sites, but the model has "
            f"{found.sites}."
        )
    values = found.energies(read.sequences)
    if command.json:
        rows = [{"name": name, "energy": float(value)} for name, value in zip(read.names, values, strict=True)]
        print_json({"energies": rows})
    else:
        for name, value in zip(read.names, values, strict=True):
            print(f"{value:.6f}\t{name}")
    return 0


COMMANDS: dict[type, Callable[[Any], int]] = {Fit: _fit, Contacts: _contacts, Sample: _sample, Energies: _energies}
