"""The gallery: every script in docs/gallery is run when the documents are built, and becomes a page and a notebook.

    generated/gallery/NAME.md      the text, the code and what it printed and drew
    generated/gallery/NAME.ipynb   the same as a notebook, to be downloaded
    generated/gallery/index.md     all of them, with their first pictures

SOLVABLE_DOCS_GALLERY=0 writes the pages without running anything, for a quick look at the text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from solvable.render.notebooks import Cell, from_script, run, to_ipynb, to_markdown

DOCS = Path(__file__).resolve().parents[1]
SOURCES = DOCS / "gallery"
ORDER = ("double_descent", "best_penalty", "plateau", "optimal_curriculum", "masked_pca", "hard_phase", "few_bits",
         "blind_source", "diffusion", "rank_collapse")  # fmt: skip


def write_gallery(folder: Path = DOCS / "generated" / "gallery", *, execute: bool | None = None) -> list[Path]:
    """Write the pages and notebooks of the gallery."""
    executes = os.environ.get("SOLVABLE_DOCS_GALLERY") != "0" if execute is None else execute
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name in ORDER:
        cells = from_script((SOURCES / f"{name}.py").read_text(encoding="utf-8"))
        cells = run(cells) if executes else cells
        (folder / f"{name}.ipynb").write_text(to_ipynb(cells), encoding="utf-8")
        page = to_markdown(cells, folder / name, f"/generated/gallery/{name}")
        page += f"\nDownload: {{download}}`notebook <{name}.ipynb>`, {{download}}`script </gallery/{name}.py>`.\n"
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
        entries.append(_entry(name, cells, (folder / f"{name}-1.png").exists()))
    head = (
        "# Gallery\n\nTen notebooks, run when these pages were built: each asks a question, computes the exact answer, "
    )
    head += "checks it by simulation and ends with an exercise. `solvable notebook MODEL` writes one for every model."
    contents = "```{toctree}\n:hidden:\n\n" + "\n".join(ORDER) + "\n```"
    (folder / "index.md").write_text("\n\n".join([head, *entries, contents]) + "\n", encoding="utf-8")
    return [folder / f"{name}.md" for name in (*ORDER, "index")]


def _entry(name: str, cells: list[Cell], drawn: bool) -> str:
    title, _, rest = cells[0].source.partition("\n")
    tags, _, about = rest.strip().partition("\n\n")
    picture = f"[![{title.strip('# ')}](/generated/gallery/{name}-1.png){{width=60%}}]({name}.md)\n\n" if drawn else ""
    return f"## [{title.strip('# ')}]({name}.md)\n\n{tags}\n\n{picture}{about}"


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", lambda _: write_gallery() and None)  # after `pages`, which empties docs/generated
    return {"parallel_read_safe": True, "parallel_write_safe": True}
