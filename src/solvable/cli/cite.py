"""The command `solvable cite`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import SolvableError
from .common import Json, print_json


@dataclasses.dataclass
class Cite:
    """Print the BibTeX entries of a model, or of all models in a stored run."""

    what: Positional[Annotated[str, arg(metavar="MODEL|RUN")]]
    json: Json = False


def run(command: Cite) -> int:
    from ..registry import listings, model_class

    if command.what in listings():
        ids = [command.what]
    elif Path(command.what).is_dir():
        from ..lab.store import Store

        store = Store.open(command.what)
        studies = [store.read_document(n) for n in store.documents() if n.startswith("study-")]
        ids = sorted({m["id"] for s in studies for m in s["models"].values()})
        if not ids:
            raise SolvableError(f"the run at {command.what} contains no study.")
    else:
        from ..errors import nearest

        raise SolvableError(f"{command.what!r} is neither a model nor a run; {nearest(command.what, list(listings()))}")
    entries = {r.key: r.bibtex() for i in ids for r in model_class(i).references}
    if command.json:
        print_json({"models": ids, "bibtex": list(entries.values())})
    else:
        print("\n\n".join(entries.values()))
    return 0
