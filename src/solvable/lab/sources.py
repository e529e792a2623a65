"""The sources a module rests on, so that a result computed by them can be kept until one of them changes."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.name
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "diffrax", "optimistix", "optax", "xarray")


def fingerprint(modules: Iterable[str], files: Iterable[Path] = (), without: tuple[str, ...] = ()) -> str:
    """A hash of some modules of this package, of all modules that they import, of more files, and of library versions.

    Modules whose names begin with one of `without` are left out.

    >>> same = fingerprint(["solvable.errors"]) == fingerprint(["solvable.errors"])
    >>> same, fingerprint(["solvable.errors"]) == fingerprint(["solvable.model"])
    (True, False)
    """
    digest = hashlib.sha256()
    for library in LIBRARIES:
        digest.update(f"{library} {importlib.metadata.version(library)}\n".encode())
    rest = (module for module in sorted(imported(modules)) if not module.startswith(without))
    for file in [*map(_file, rest), *sorted(files)]:
        if file is not None and file.exists():
            digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def imported(modules: Iterable[str]) -> set[str]:
    """These modules of the package and all that they import, also inside functions.

    The package's own `__init__` is included, but not followed: it imports on demand.

    >>> sorted(name for name in imported(["solvable.contract.parse_values"]) if "methods" in name)
    []
    >>> "solvable.methods.flows.integrate" in imported(["solvable.models.online.rl_perceptron.model"])
    True
    """
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        package, _, _ = module.rpartition(".")
        waiting += [package] if package else []
        waiting += _imports(module) if module != ROOT else ()
    return found


@cache
def _imports(module: str) -> tuple[str, ...]:
    file = _file(module)
    if file is None:
        return ()
    here = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_imported_by(ast.parse(file.read_bytes()), here))


def _imported_by(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == ROOT and _file(name) is not None)


def _file(module: str) -> Path | None:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None
