"""Pages made from declarations: one for every model, one list of every module's public functions.

Everything is Markdown, because the docstrings are. `write_pages` fills `docs/generated` before Sphinx reads its sources:

    generated/models/ID.md      a model: set-up, fields, observables, numerics, figures, references, how to call it
    generated/models/index.md   the models by family
    generated/api/NAME.md       the public names of a module, to be included in a written page
    generated/words.md          every name of a field, an observable or a dimension, and the models that use it
    generated/claims.md         every claim of every paper, with the verdict that stored data give
    generated/methods/index.md  the methods by package: each has a written page, docs/methods/PACKAGE.md
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from solvable.render.formulas import with_formulas
from solvable.render.paper import documented as documented_functions

DOCS = Path(__file__).resolve().parents[1]
LABORATORY = ("model", "contract.declarations", "contract.settings", "contract.outcome", "study", "lab.agreement", "search",
              "registry", "testing", "lab.store", "render.plots", "render.paper", "render.notebooks")  # fmt: skip
"""What `reference.md` includes, beside the methods."""

NEIGHBOURS = ("models.replica.narrow_network.hamiltonian", "models.attention.potts_attention.softmax_regression",
              "tools.logistic_replica")  # fmt: skip
"""What pages of the methods include, though it stands with the one model or tool that uses it."""


def write_pages(folder: Path = DOCS / "generated", *, figures: bool | None = None) -> list[Path]:
    """Write every generated page; pictures are drawn anew if `figures` (or SOLVABLE_DOCS_FIGURES=1)."""
    from solvable.models import LISTINGS

    draws = os.environ.get("SOLVABLE_DOCS_FIGURES") == "1" if figures is None else figures
    shutil.rmtree(folder, ignore_errors=True)
    pages = {f"models/{line.id}.md": model_page(line, folder, draws) for line in LISTINGS}
    pages["models/index.md"] = models_index(LISTINGS)
    pages |= {api_file(name): module_api(name) for name in [*method_modules(), *NEIGHBOURS, *LABORATORY]}
    pages["methods/index.md"] = methods_index()
    pages["words.md"] = words_table(LISTINGS)
    pages["claims.md"] = claims_page(LISTINGS)
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


# --- models -----------------------------------------------------------------------------------------------------------


def model_page(line: Any, folder: Path, draws: bool = False) -> str:
    """One model, from its declarations alone."""
    from solvable.contract.describe import describe

    model = getattr(importlib.import_module(line.module), line.name)
    about = describe(model)
    parts = [
        f"({line.id})=\n# {about['title']}",
        typeset(line.sentence),
        f"`{line.id}` · family *{about['family']}* · `solvable.{line.name}` · {line.kind} · revision {about['revision']}",
        "## Set-up\n\n" + markdown(about["about"], formulas=True),
        "## Fields\n\n" + fields_table(about["fields"]),
        "## Observables\n\n" + observables_table(about["observables"]),
        "## How it is computed\n\n" + numerics_text(model, about),
        *functions_text(model),
        "## Try it\n\n" + examples(line, model),
        figures_text(line.id, folder, draws),
        claims_text(line.id),
        "## References\n\n" + references_text(model, line.id),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def words_table(listings: Iterable[Any]) -> str:
    """Every word of every model: what kind of thing it is, its symbols, and what it means in which models."""
    words: dict[str, dict[str, Any]] = {}
    for line in listings:
        model = getattr(importlib.import_module(line.module), line.name)
        named = [(n, f.kind, f.symbol, f.meaning) for n, f in model.fields().items()]
        named += [(o.name, "observable", o.symbol, o.meaning) for o in model.observables_declared]
        named += [(d.name, "dimension", d.symbol, d.meaning) for d in model.dimensions_declared]
        for word, kind, symbol, meaning in named:
            entry = words.setdefault(word, {"kinds": {}, "symbols": {}, "meanings": {}})
            entry["kinds"][kind] = None
            entry["meanings"].setdefault(meaning, {})[line.id] = None
            if symbol:
                entry["symbols"][symbol] = None
    rows = [
        [f"`{word}`", ", ".join(e["kinds"]), ", ".join(math(x) for x in e["symbols"]),
         "<br>".join(f"{formula_cell(meaning)} ({', '.join(f'[{id}](#{id})' for id in models)})"
                     for meaning, models in e["meanings"].items())]
        for word, e in sorted(words.items())
    ]  # fmt: skip
    return table(["word", "kind", "symbol", "meaning (models)"], rows) + "\n"


def fields_table(fields: Iterable[dict[str, Any]]) -> str:
    rows = []
    for field in fields:
        allowed = code_list(field["options"]) if field["options"] else cell(named(field["range"]))
        if field["typical"]:
            allowed += f" (typically {field['typical'][0]:g} to {field['typical'][1]:g})"
        default = f"`{field['default']}`" if field["options"] else cell(field["default"])
        meaning = formula_cell(field["meaning"]) + ("; a whole number in a simulation" if field["counts"] else "")
        rows.append([f"`{field['name']}`", field["kind"], math(field["symbol"]), default, allowed, meaning])
    return table(["field", "kind", "symbol", "default", "range", "meaning"], rows)


def named(text: str) -> str:
    """A text with its names of several words as code: `input_dimension`, `layer_norm`."""
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", r"`\g<0>`", text)


def observables_table(observables: Iterable[dict[str, Any]]) -> str:
    rows = []
    for about in observables:
        compared = about["simulated"] and about["predicted"]
        where = "both" if compared else "theory" if about["predicted"] else "simulation"
        power = "" if about["status"] == "exact" or not compared else math(f"d^{{-{simple(about['power'])}}}")
        name = f"`{about['name']}`"
        dims = " × ".join(f"`{d}`" for d in about["dims"]) or "–"
        rows.append([name, math(about["symbol"]), dims, about["status"], power, where, cell(named(about["when"])),
                     formula_cell(about["meaning"])])  # fmt: skip
    heads = ["observable", "symbol", "dimensions", "status", "finite-size term", "given by", "when", "meaning"]
    return table(heads, rows)


def numerics_text(model: Any, about: dict[str, Any]) -> str:
    runs = {
        "vmap": "batched, many realisations in one program",
        "map": "compiled, one realisation after another",
        "host": "one by one, in Python",
    }
    sizes = ", ".join(map(str, about["typical_sizes"]))
    simulation = f"Simulations run {runs[about['runs']]}, in {model.simulation_dtype}; typical sizes are {sizes}."
    if not has_theory(model):
        return f"This is an experiment: it has no closed theory. {simulation}"
    settings = code_list(f"{k}={v!r}" for k, v in about["numerics"].items())
    stated = (
        f"Finer numerics move no observable by more than {small(about['accuracy'])}; a point alone and in a batch agree to "
        f"{small(model.batch_accuracy)}; gradients equal central differences to {small(model.gradient_accuracy)} (relative)."
    )
    how = f"Numerics: {settings}." if settings else "The theory is a closed form: there is nothing to refine."
    return f"{how} {stated}\n\n{simulation}"


def has_theory(model: Any) -> bool:
    from solvable.model import Model

    return model.point is not Model.point


def functions_text(model: Any) -> list[str]:
    """The equations that stand at the functions of a model (those a class defines itself, and documents)."""
    docs = documented_functions(model)
    return [f"`{name}`\n: {indented(markdown(doc, formulas=True), 2)}" for name, doc in docs.items()]


def own_doc(function: Any) -> str:
    return inspect.cleandoc(getattr(function, "__doc__", None) or "")


def examples(line: Any, model: Any) -> str:
    swept = next((n for n, f in model.fields_of("control").items()), None)
    size = model.typical_sizes[0]
    python = ["import numpy as np", "import solvable as sv", "", f"model = sv.{line.name}()"]
    theory = has_theory(model)
    python += ["print(model.theory())"] if theory else []
    python += [f"print(model.simulate(seed=0, size={size}))"]
    shell = [f"solvable theory {line.id}"] if theory else []
    shell += [f"solvable simulate {line.id} --size {size}"]
    if swept:
        declaration = model.fields()[swept]
        low, high = declaration.span
        logarithmic = declaration.scale == "log" and low > 0
        space = "geomspace" if logarithmic else "linspace"
        sizes = list(model.typical_sizes[:2])
        python += [
            "",
            f'study = sv.Study(model, over={{"{swept}": np.{space}({low:g}, {high:g}, 9)}}, sizes={sizes}, seeds=8)',
            f'study.run("runs/{line.id}")',
            *(["print(study.agreement())"] if theory else []),
            "study.plot()",
        ]
        ends = f"{low:g}:{high:g}:9" + (":log" if logarithmic else "")
        joined = ",".join(map(str, sizes))
        shell += [f"solvable study {line.id} --over {swept}={ends} --size {joined} --seeds 8 --out runs/{line.id}"]
    return fenced("python", "\n".join(python)) + "\n\n" + fenced("shell", "\n".join(shell))


def figures_text(id: str, folder: Path, draws: bool) -> str:
    """The model's figures: drawn now, or the committed pictures; a figure without a picture is told by its command."""
    from solvable.lab.ledger import decided_by
    from solvable.models import FIGURES

    parts = []
    for listing in (f for f in FIGURES if f.shows(id)):
        file, address = DOCS / "pictures" / f"{listing.name}.png", f"/pictures/{listing.name}.png"
        if draws:
            from solvable.render.figures import draw

            draw(listing.name, folder / "figures", quick=True)
            file, address = folder / "figures" / file.name, f"/generated/figures/{file.name}"
        shown = ""
        if file.exists():
            shown = f"\n\n```{{image}} {address}\n:alt: {listing.sentence}\n:width: {png_width(file) // 2}px\n```"
        command = fenced("shell", f"solvable figure {listing.name}")
        claims = [(entry.judged.verdict, entry.judged.claim.sentence) for entry in decided_by(listing.name)]
        decides = "".join(f" *It decides:* {typeset(claim)} (**{verdict}**)" for verdict, claim in claims)
        parts.append(f"**{listing.name}.** {typeset(listing.sentence)}{decides}{shown}\n\n{command}")
    return "## Figures\n\n" + "\n\n".join(parts) if parts else ""


def png_width(file: Path) -> int:
    """Width in pixels, which stands at a fixed place of every PNG; figures are drawn at twice the screen's density."""
    return int.from_bytes(file.read_bytes()[16:20], "big")


def claims_text(id: str, heading: str = "## What the papers claim, and what was seen") -> str:
    """Every claim behind a model with the verdict that stored data give."""
    from solvable.lab.ledger import ledger

    signs = {True: "✓", False: "✗", None: "?"}
    rows = []
    for entry in ledger(id):
        judged, claim = entry.judged, entry.judged.claim
        numbers = [f"{signs[n.holds(claim.margin)]} {formula_cell(n.describe())}" for n in judged.numbers]
        rest = {"tried": claim.settings, "missing": claim.missing, **judged.decided}
        numbers += [f"*{name}*: {formula_cell(text)}" for name, text in rest.items() if text]
        seen = "<br>".join(numbers) or f"*if it holds*: {formula_cell(claim.seen)}"
        cited = f"{entry.paper.authors.split(',')[0].split(' and ')[0]} {entry.paper.year}"
        command = f"`{judged.command}`" if judged.command else ""
        command += f" ({judged.duration})" if judged.duration else ""
        rows.append([f"**{judged.verdict}**", f"{formula_cell(claim.sentence)} ({cell(cited)})", seen, command])
    return f"{heading}\n\n" + table(["verdict", "claim", "seen", "shown by"], rows) if rows else ""


def claims_page(listings: Iterable[Any]) -> str:
    """The whole ledger."""
    from solvable.lab.ledger import counts, ledger

    numbers = ", ".join(f"{n} {verdict}" for verdict, n in counts(ledger()).items())
    parts = [claims_text(line.id, f"## [{line.id}](#{line.id})") for line in listings]
    return "\n\n".join([f"All in all: {numbers}.", *(part for part in parts if part)]) + "\n"


def references_text(model: Any, id: str) -> str:
    items = []
    for paper in model.references:
        links = [f"[arXiv:{paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})"] if paper.arxiv else []
        links += [f"[doi:{paper.doi}](https://doi.org/{paper.doi})"] if paper.doi else []
        where = f" {paper.venue}." if paper.venue else ""
        items.append(f"- {paper.authors} ({paper.year}). *{paper.title}*.{where} {', '.join(links)}".rstrip())
    entries = fenced("bibtex", "\n\n".join(paper.bibtex() for paper in model.references))
    return "\n".join(items) + folded(f"BibTeX (also: <code>solvable cite {id}</code>)", entries)


def models_index(listings: Iterable[Any]) -> str:
    """All models, by family."""
    families: dict[str, list[Any]] = {}
    for line in listings:
        families.setdefault(line.family, []).append(line)
    parts = [
        "# Models",
        "Each page is made from what the model declares about itself: `solvable show MODEL` says the same.",
    ]
    for family, lines in families.items():
        title = importlib.import_module(f"solvable.models.{family}").__doc__ or family
        rows = [[f"[{line.id}]({line.id}.md)", line.kind, formula_cell(line.sentence)] for line in lines]
        parts.append(f"## {family}\n\n{first_sentence(title)}\n\n" + table(["model", "kind", "what"], rows))
        parts.append("```{toctree}\n:hidden:\n\n" + "\n".join(line.id for line in lines) + "\n```")
    return "\n\n".join(parts) + "\n"


# --- modules ----------------------------------------------------------------------------------------------------------


def method_packages() -> list[str]:
    """Every package of `solvable.methods`, as `methods.PACKAGE`."""
    import solvable.methods

    found = pkgutil.iter_modules(solvable.methods.__path__)
    return [f"methods.{m.name}" for m in found if not m.name.startswith("_")]


def method_modules(package: str = "") -> list[str]:
    """Every public module of a package of methods (of all, if none is named), as `methods.PACKAGE.NAME`."""
    found = []
    for name in [package] if package else method_packages():
        inside = pkgutil.iter_modules(importlib.import_module(f"solvable.{name}").__path__)
        found += [f"{name}.{m.name}" for m in inside if not m.name.startswith("_")]
    return found


def api_file(name: str) -> str:
    """Where the public names of a module are listed: under its package, or alone for those of `reference.md`."""
    package, _, module = name.rpartition(".")
    return f"api/{module}.md" if name in LABORATORY else f"api/{package.rpartition('.')[2]}/{module}.md"


def methods_index() -> str:
    """All modules of methods, by package."""
    parts = [
        "# Methods",
        "Mathematics that models share, and that knows no model. Every module can be used on its own.",
    ]
    for package in method_packages():
        page = f"/methods/{package.rpartition('.')[2]}"
        title, _, about = documented(package).partition(":")
        rows = [[f"`solvable.{n}`", cell(first_sentence(documented(n)))] for n in method_modules(package)]
        parts.append(
            f"## [{title}]({page}.md)\n\n{about.strip().capitalize()}\n\n{table(['module', 'what it computes'], rows)}"
        )
    contents = "\n".join(f"/methods/{package.rpartition('.')[2]}" for package in method_packages())
    return "\n\n".join([*parts, "```{toctree}\n:hidden:\n\n" + contents + "\n```"]) + "\n"


def documented(name: str) -> str:
    return inspect.getdoc(importlib.import_module(f"solvable.{name}")) or ""


def module_api(name: str) -> str:
    """The public names of a module, as directives of Sphinx's Python domain with their docstrings."""
    module = importlib.import_module(f"solvable.{name}")
    public = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    parts = []
    for n in public:
        thing = getattr(module, n)
        if getattr(thing, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(thing):
            parts.append(class_api(thing))
        elif callable(thing) and inspect.getdoc(thing):
            parts.append(directive("py:function", f"{n}{signature(thing)}", own_doc(thing)))
    return f"```{{py:currentmodule}} solvable.{name}\n```\n\n" + "\n\n".join(parts) + "\n"


def class_api(kind: type) -> str:
    """A class: what it says of itself, and its own public methods that say something."""
    inner = []
    for name, thing in vars(kind).items():
        plain = thing.__func__ if isinstance(thing, (classmethod, staticmethod)) else thing
        if name.startswith("_") or not own_doc(plain):
            continue
        if isinstance(thing, property):
            inner.append(directive("py:property", name, own_doc(thing)))
        elif inspect.isfunction(inspect.unwrap(plain)) or hasattr(plain, "__wrapped__"):
            kindly = ":classmethod:\n" if isinstance(thing, classmethod) else ""
            inner.append(directive("py:method", f"{name}{signature(plain, skip_first=True)}", own_doc(plain), kindly))
    doc = own_doc(kind)
    if re.match(rf"{kind.__name__}\(.*\)$", doc, re.DOTALL):  # what dataclasses and named tuples say by themselves
        doc = ""
    made = signature(kind) if hasattr(kind, "_fields") else ""
    if "__init__" in vars(kind) and inspect.isfunction(vars(kind)["__init__"]):
        made = signature(vars(kind)["__init__"], skip_first=True).partition(" -> ")[0]
    return directive("py:class", kind.__name__ + made, doc, inner="\n\n".join(inner))


def directive(name: str, head: str, doc: str, options: str = "", inner: str = "") -> str:
    body = "\n\n".join(part for part in (markdown(doc), inner) if part)
    fence = ":" * (3 + max((len(run) for run in re.findall(r"^:{3,}", body, re.MULTILINE)), default=0))
    return f"{fence}{{{name}}} {head}\n{options}\n{body}\n{fence}"


def signature(function: Any, skip_first: bool = False) -> str:
    """Arguments with their annotations as written, and the result."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "()"
    parameters = list(found.parameters.values())[1 if skip_first else 0 :]
    words, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred and not any(q.kind is q.VAR_POSITIONAL for q in parameters):
            words.append("*")
            starred = True
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        declaration = "" if p.annotation is p.empty else f": {annotation(p.annotation)}"
        default = "" if p.default is p.empty else f"{' = ' if declaration else '='}{p.default!r}"
        words.append(f"{star}{p.name}{declaration}{default}")
    result = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    return f"({', '.join(words)}){result}"


def annotation(declaration: Any) -> str:
    declaration = getattr(declaration, "__forward_arg__", declaration)  # what a named tuple makes of a string
    return declaration if isinstance(declaration, str) else getattr(declaration, "__name__", str(declaration))


# --- Markdown -----------------------------------------------------------------------------------------------------------


def markdown(doc: str, *, formulas: bool = False) -> str:
    """A docstring as Markdown: examples fenced, equations set apart, lists preceded by a blank line; on request its formulas
    are set as mathematics."""
    lines, out, fence = doc.splitlines(), [], ""
    equations = "```{formula}" if formulas else "```{code-block} text\n:class: equation\n"
    words: list[str] = []

    def prose() -> list[str]:
        declaration = "\n".join(words)
        words.clear()
        return [typeset(declaration) if formulas else declaration] if declaration else []

    for i, line in enumerate(lines):
        example, equation = line.lstrip().startswith(">>> "), line.startswith("    ") and (not i or not lines[i - 1])
        if not fence and (example or equation):
            out += prose()
            fence = "pycon" if example else "equation"
            out += ["```pycon" if example else equations]
        elif fence == "pycon" and not line.strip():
            fence, out = "", [*out, "```"]
        elif fence == "equation" and line.strip() and not line.startswith("    "):
            fence, out = "", [*_without_blank_end(out), "```", ""]
        elif not fence and line.startswith("- ") and i and lines[i - 1].strip() and not _in_list(lines, i - 1):
            words.append("")
        if fence:
            out.append(line[4:] if fence == "equation" else line)
        elif line.strip() or words:
            words.append(line)
        else:
            out += [*prose(), ""]
    return "\n".join([*_without_blank_end(out), "```"] if fence else [*out, *prose()])


def typeset(text: str, plain: Callable[[str], str] = str) -> str:
    """Prose with its formulas as roles, and the names of fields in it as code."""

    def words(part: str) -> str:
        names = re.split(r"\b([a-z]+(?:_[a-z]+)+)\b", part)
        return "".join(f"`{name}`" if k % 2 else plain(name) for k, name in enumerate(names))

    return with_formulas(text, "{{formula}}`{}`".format, words)


def formula_cell(text: str) -> str:
    """The same in a cell of a table."""
    declaration = typeset(text, cell)
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("|", r"\|"), declaration).replace("\n", " ")


def _in_list(lines: list[str], i: int) -> bool:
    return lines[i].startswith(("- ", "  "))


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table without the columns that are empty throughout."""
    kept = [i for i in range(len(heads)) if any(row[i].strip("– ") for row in rows)]
    lines = [[heads[i] for i in kept], ["---"] * len(kept), *([row[i] for i in kept] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    return re.sub(r"([|*_\[\]<$\\])", r"\\\1", text).replace("\n", " ")


def math(symbol: str) -> str:
    return f"${symbol}$".replace("|", r"\|") if symbol else ""


def simple(number: float) -> str:
    """A power as a small fraction: 2/3, not 0.666667."""
    return str(Fraction(number).limit_denominator(12))


def small(number: float) -> str:
    return f"{number:g}".replace("e-0", "e-")


def code_list(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def folded(summary: str, text: str) -> str:
    return f"\n\n<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def indented(text: str, by: int) -> str:
    return text.replace("\n", "\n" + " " * by)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text.strip().replace("\n", " "), maxsplit=1)[0]


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", lambda _: write_pages() and None)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
