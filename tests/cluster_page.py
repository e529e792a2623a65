"""The commands of docs/cluster.md as local scripts with a small study, for the tests of that page."""

import re
import shlex
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"
SMALL = "perceptron loss=square --over penalty=0.1:1:3 --size 16 --seeds 4"
LARGE_NUMBERS = {"--tasks 64": "--tasks 2", "--workers 64 --cores 8": "--workers 2 --cores 1", "--workers 4": "--workers 2",
                 "--nthreads 8": "--nthreads 1", "--job-memory 16G": "--job-memory 1G",
                 "--cluster slurm": "--cluster slurm --interface lo"}  # fmt: skip


def blocks() -> dict[str, str]:
    """The named blocks of the page."""
    found = re.findall(
        r"^```\{code-block\} shell\n:name: (\S+)\n\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(found)


def script(name: str, port: int = 0) -> str:
    """One block of the page as a bash script on loopback; schedulers and workers run in the background and end with it."""
    text = blocks()[name].replace("\\\n", " ").replace("login01:8786", f"127.0.0.1:{port}")
    text = text.replace("--port 8786", f"--host 127.0.0.1 --port {port} --dashboard-address 127.0.0.1:0")
    text = re.sub(
        r"^(dask worker \S+)", r"\1 --host 127.0.0.1 --dashboard-address 127.0.0.1:0", text, flags=re.MULTILINE
    )
    for large, small in LARGE_NUMBERS.items():
        text = text.replace(large, small)
    text = re.sub(r"^(dask [^#\n]*).*$", r'\1 >> dask.log 2>&1 & started+=("$!")', text, flags=re.MULTILINE)
    python = shlex.quote(sys.executable)
    return f"""set -eu
solvable() {{ {python} -m solvable "$@"; }}
dask() {{ exec {python} -m dask "$@"; }}
started=()
finish() {{ for process in "${{started[@]}}"; do kill "$process" || true; done; wait; }}
trap finish EXIT
STUDY="{SMALL}"
{text}"""
