"""Build the documents, offline and with warnings as errors:

python -m sphinx -W --keep-going -b html docs docs/_build/html

SOLVABLE_DOCS_FIGURES=1 draws the figures of the models' pages anew; otherwise those in docs/pictures are shown.
SOLVABLE_DOCS_GALLERY=0 leaves out the outputs of the gallery, whose notebooks are otherwise run (two minutes).
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")
# Most of the gallery's time is compiling: programs are optimised less, as in the tests (numbers differ by rounding).
quick = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
os.environ["XLA_FLAGS"] = f"{quick} {os.environ.get('XLA_FLAGS', '')}".strip()

from solvable import __version__  # noqa: E402

project = "solvable"
author = "The solvable developers"
copyright = "The solvable developers"
release = version = __version__

# Signatures have short names of types, and several modules have a Mixture or a Channel of their own.
suppress_warnings = ["ref.python"]
extensions = ["myst_parser", "pages", "gallery", "mathml"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"  # no script, nothing fetched
root_doc = "index"
exclude_patterns = ["_build", "generated/api", "generated/claims.md", "skeleton", "gallery"]
highlight_language = "none"
add_module_names = False
python_maximum_signature_line_length = 88
toc_object_entries = False

html_theme = "furo"
html_title = "solvable"
html_static_path = ["_static"]
html_css_files = ["house.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}
