"""A snapshot: a view as one HTML file with its plot and text, which opens anywhere, without a server, scripts or requests."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..errors import InvalidValue, SolvableError
from .describe import claims, describe_model, reference, symbol
from .files import export
from .links import is_link, shown_of
from .pictures import Shown
from .prose import prose
from .reproduce import drawable, link, python, shell
from .theory import as_study, compute, theory_of

STYLE = Path(__file__).parent / "static" / "snapshot.css"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SIGNS = {"agree": "✓", "finite-size": "↘", "inconclusive": "?", "disagree": "✗"}
MOST_ROWS = 200


def write_snapshot(what: str | None, file: Path, simulate: bool, as_json: bool) -> int:
    """The command `solvable explore RUN|LINK --snapshot FILE`."""
    from ..lab.jax_environment import configure

    configure()
    if what is None:
        raise InvalidValue("a snapshot needs something to show: a run, or a link such as '?model=perceptron'.")
    if is_link(what):
        content = of_view(shown_of(what), simulate=simulate)
    else:
        from .command import open_study
        from .stored_study import StoredStudy

        content = of_study(StoredStudy(open_study(Path(what)), Path(what)), [])
    try:
        file.write_bytes(content)
    except OSError as problem:
        raise SolvableError(f"{str(file)!r} cannot be written: {problem.strerror}.") from None
    print(json.dumps({"file": str(file), "bytes": len(content)}) if as_json else f"{file}: {len(content)} bytes")
    return 0


def of_view(shown: Shown, *, simulate: bool = False) -> bytes:
    """The snapshot of a view, computed here."""
    from .worker import agreement_of

    view, study, agreement = shown.view, None, None
    if simulate:
        view.check_simulation()
        study = view.study()
        study.run(progress=False)
        agreement = agreement_of(study) if view.model.has_theory else None

    def curve(other: Any) -> Any:
        return as_study(other, compute(other))

    if study is None and theory_of(view.model) is None:
        study = curve(view)
    return page_of_view(shown, picture_of(shown, study, curve), study, agreement)


def picture_of(shown: Shown, study: Any, curve: Any) -> bytes | None:
    """The figure of a view as SVG; None if there is nothing to draw. `curve` computes the theory of a pinned view."""
    names = drawable(shown.view.model, list(shown.view.observables), bool(shown.view.axes))
    return (
        export(study, names, "svg", outlines=True, **shown.drawn_with(curve)) if study is not None and names else None
    )


def page_of_view(shown: Shown, picture: bytes | None, study: Any, agreement: dict[str, Any] | None) -> bytes:
    """The HTML of a view from its parts."""
    model = shown.view.model
    about = describe_model(model.id)
    address = link(shown, "").removeprefix("/")
    parts = [
        f"<p class=lead>{about['sentence_html']}</p>",
        _figure(picture) if picture else _kept(model.id) if study is None else "",
        _findings(agreement, list(shown.view.observables)),
        _table(shown.view, study),
        "<section><h2>Values</h2>", _values(shown), "</section>",
        f"<section class=prose><h2>The set-up</h2>{about['about_html']}</section>",
        _ledger(model.id),
        _references(type(model)),
        "<section><h2>The same numbers</h2>",
        f"<h3>Python</h3><pre>{html.escape(python(shown))}</pre><h3>Shell</h3><pre>{html.escape(shell(shown))}</pre>",
        f"<h3>This view, with its sliders</h3><pre>solvable explore {html.escape(shlex.quote(address))}</pre></section>",
    ]  # fmt: skip
    return _document(about["title"], parts)


def of_study(stored: Any, observables: list[str]) -> bytes:
    """The snapshot of a stored study."""
    about, study = stored.about(), stored.study
    names = stored.checked(observables) or [o["name"] for o in about["observables"]][:1]
    model = next(iter(study.models.values()))
    held = "".join(f"<tr><th>{_words(n)}<td>{html.escape(str(v))}" for n, v in about["values"].items())
    sizes = ", ".join(map(str, about["sizes"])) or "none"
    parts = [
        f"<p class=lead>Stored study “{html.escape(about['name'])}”: sizes {sizes}, {about['seeds']} seeds.</p>",
        _figure(export(study, names, "svg", outlines=True)),
        _findings(stored.agreement(), names),
        f"<section><h2>Held fixed</h2><table>{held}</table></section>" if held else "",
        f"<section class=prose><h2>The set-up</h2>{prose(type(model).__doc__ or '')}</section>",
        _ledger(model.id),
        _references(type(model)),
    ]
    return _document(about["title"], parts)


def _document(title: str, parts: list[str]) -> bytes:
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><style>{STYLE.read_text(encoding="utf-8")}</style></head>'
    )
    foot = f"<footer>Made by solvable {html.escape(__version__)}; nothing is loaded from elsewhere.</footer>"
    body = f"<body><main><h1>{html.escape(title)}</h1>{''.join(parts)}</main>{foot}</body></html>"
    return (head + body).encode("utf-8")


def _figure(picture: bytes) -> str:
    """An SVG document as part of a page: without its prologue, its description and the fixed size."""
    text = picture.decode("utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return f"<figure>{text}</figure>"


def _kept(id: str) -> str:
    """The kept figures of a model that has no curve to draw."""
    from .kept import figures, picture

    return "".join(f"{_figure(picture(f['name']))}<p class=caption>{f['sentence_html']}</p>" for f in figures(id)[:1])


def _findings(agreement: dict[str, Any] | None, shown: list[str]) -> str:
    rows = [r for r in (agreement or {"rows": []})["rows"] if r["observable"] in shown]
    lines = [f"<li>{SIGNS.get(r['verdict'], '·')} <strong>{_words(r['observable'])}</strong> {html.escape(r['sentence'])}</li>"
             for r in rows]  # fmt: skip
    return f"<ul class=findings>{''.join(lines)}</ul>" if lines else ""


def _table(view: Any, study: Any) -> str:
    """The scalar observables along the axis, theory beside the means of the simulation."""
    declared = view.model.observables()
    names = [n for n in view.observables if not declared[n].dims and not declared[n].random]
    if study is None or len(view.axes) != 1 or not names:
        return ""
    data, field, columns = study.dataset(), view.axes[0].field, {}
    for name in names:
        if f"{name}_theory" in data:
            columns[f"{_words(name)}, theory"] = data[f"{name}_theory"].values
        if f"{name}_simulated" in data:
            for size in data["size"].values:
                found = data[f"{name}_simulated"].sel(size=size).transpose(field, "seed").values
                columns[f"{_words(name)}, simulated, size {size}"] = found.mean(1)
    head = "".join(f"<th>{name}" for name in [_words(field), *columns])
    rows = [np.asarray(data[field].values), *(np.asarray(c) for c in columns.values())]
    body = "".join(
        "<tr>" + "".join(f"<td>{_number(column[i])}" for column in rows) for i in range(min(len(rows[0]), MOST_ROWS))
    )
    return f"<details><summary>Values as a table</summary><div class=scroll><table><tr>{head}{body}</table></div></details>"


def _values(shown: Shown) -> str:
    """Every control and choice with its value; those on an axis with their range."""
    view, rows = shown.view, []
    axes = {a.field: f"{_number(a.low)} to {_number(a.high)}" for a in view.axes}
    for name, declared in type(view.model).fields_of("control", "choice").items():
        value = getattr(view.model, name)
        text = axes.get(name) or (_number(float(value)) if declared.kind == "control" else str(value))
        rows.append(f"<tr><th>{_words(name)} {symbol(declared.symbol)}<td>{html.escape(text)}")
    return f"<table>{''.join(rows)}</table>"


def _ledger(id: str) -> str:
    lines = []
    for claim in claims(id):
        paper = f"<p class=caption>{html.escape(claim['paper'])}</p>"
        lines.append(f"<li><strong>{html.escape(claim['verdict'])}</strong> {claim['sentence_html']}{paper}</li>")
    return f"<section class=prose><h2>What the papers claim</h2><ul>{''.join(lines)}</ul></section>" if lines else ""


def _references(kind: Any) -> str:
    papers = [reference(r) for r in kind.references]
    lines = [f'<li><a href="{html.escape(p["url"])}" rel="noreferrer">{html.escape(p["text"] or "")}</a></li>' if p["url"]
             else f"<li>{html.escape(p['text'] or '')}</li>" for p in papers]  # fmt: skip
    return f"<section><h2>References</h2><ul>{''.join(lines)}</ul></section>" if lines else ""


def _words(name: str) -> str:
    return html.escape(name.replace("_", " "))


def _number(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:.5g}"
