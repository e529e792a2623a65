"""The options of `solvable sweep run` for clusters. Imported by the command line: nothing heavy here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

if TYPE_CHECKING:
    from ..lab.cluster import Tls
    from ..lab.launch import Jobs

ClusterName = Annotated[
    str,
    arg(
        metavar="WHERE", help="Work on a dask cluster: local, slurm, or a scheduler's tcp://host:port, tls://host:port."
    ),
]


def with_sbatch(words: list[str]) -> list[str]:
    """The words of a command line, with `--sbatch OPTIONS` as one: its value looks like an option and is none.

    >>> with_sbatch(["sweep", "run", "--sbatch", "--account=x --exclude=y", "--json"])
    ['sweep', 'run', '--sbatch=--account=x --exclude=y', '--json']
    """
    at = words.index("--sbatch") if "--sbatch" in words[:-1] else len(words)
    return words[:at] + ["=".join(words[at : at + 2])] * (at < len(words)) + words[at + 2 :]


@dataclass
class TlsFiles:
    """Certificates for a scheduler at tls://host:port, and for --cluster slurm (which else makes its own)."""

    tls_ca: Annotated[Path | None, arg(metavar="FILE", help="The authority that signed all certificates.")] = None
    tls_cert: Annotated[Path | None, arg(metavar="FILE", help="Our certificate.")] = None
    tls_key: Annotated[Path | None, arg(metavar="FILE", help="Its private key.")] = None

    def checked(self) -> Tls:
        """The files, all or none; refused in one sentence otherwise."""
        from ..lab.cluster import Tls

        return Tls(*("" if file is None else str(file) for file in (self.tls_ca, self.tls_cert, self.tls_key)))


@dataclass
class SlurmJobs:
    """What Slurm jobs ask for, with --slurm and with --cluster slurm."""

    queue: Annotated[str, arg(metavar="NAME", help="Partition.")] = ""
    walltime: Annotated[str, arg(metavar="TIME", help="Longest time of a job, as 12:00:00.")] = ""
    job_memory: Annotated[str, arg(metavar="SIZE", help="Memory of a job, as 4G.")] = ""
    cores: Annotated[int, arg(metavar="N", help="Workers in a job of --cluster slurm.")] = 1
    sbatch: Annotated[str, arg(metavar="OPTIONS", help="Anything else, as '--account=x --exclude=y'.")] = ""
    interface: Annotated[str, arg(metavar="NAME", help="Network of --cluster slurm, as ib0.")] = ""

    def checked(self) -> Jobs:
        """The request; refused in one sentence if it is none."""
        from ..lab.launch import Jobs

        return Jobs(**{name.removeprefix("job_"): value for name, value in vars(self).items()})
