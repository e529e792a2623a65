"""The pictures of the tour, taken from the running page: `python docs/make_screenshots.py [NAME ...]`.

The views are those of the page's own tour (`tour.json`); what is simulated is small, so that everything takes two minutes.
The pictures look as they do elsewhere where the fonts are the same (Debian: fonts-liberation fonts-lmodern).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
from benchmarks.browsing import browser, missing, opened, served  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
TOUR = json.loads((ROOT / "src" / "solvable" / "explorer" / "static" / "tour.json").read_text(encoding="utf-8"))[
    "stories"
]
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 740}
GALLERY = {"width": 1440, "height": 900}


def simulated(page: Any) -> None:
    """Press Simulate and wait for the verdict."""
    page.get_by_label("sizes").fill("30, 60")
    page.get_by_label("seeds").fill("6")
    page.locator(".simulate .primary").click()
    page.locator(".verdict .findings li").first.wait_for()


def all_drawn(page: Any) -> None:
    """Every card has its picture; those further down are fetched when they come into sight."""
    cards = page.locator(".card")
    cards.first.wait_for()
    for k in range(cards.count()):
        cards.nth(k).scroll_into_view_if_needed()
        cards.nth(k).locator(".picture.drawn").wait_for()


def reduce(file: Path) -> None:
    """A palette of 256 colours that covers them all: a third of the size, no colour off by more than ten of 255."""
    from PIL import Image

    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def step(story: str, number: int) -> str:
    return next(s for s in TOUR if s["id"] == story)["steps"][number]["query"]


# What is in each picture: the view, the window, dark or light, and what is done before it is taken.
SHOTS: dict[str, tuple[str, dict[str, int], str, Any]] = {
    "explorer-gallery": ("", GALLERY, "light", all_drawn),
    "explorer-peak": (f"?{step('peak', 1)}&tour=peak&step=1", WIDE, "light", simulated),
    "explorer-peak-plane": (f"?{step('peak', 2)}&tour=peak&step=2", WIDE, "light", None),
    "explorer-double-descent": (f"?{step('double-descent', 1)}&tour=double-descent&step=1", WIDE, "light", simulated),
    "explorer-attention": (f"?{step('attention', 2)}&tour=attention&step=2", WIDE, "dark", None),
    "explorer-phone": (f"?{step('double-descent', 0).replace(',train_loss', '')}", PHONE, "light", None),
}


def main(names: list[str]) -> int:
    if (why := missing()) is not None:
        print(why, file=sys.stderr)
        return 1
    with served() as server, browser() as chromium:
        for name in names or SHOTS:
            query, window, scheme, act = SHOTS[name]
            small = window is PHONE
            context = chromium.new_context(viewport=window, color_scheme=scheme, is_mobile=small, has_touch=small)
            context.set_default_timeout(600_000)
            page = context.new_page()
            page.goto(server.address())
            opened(page, server, query)
            if act is not None:
                act(page)
                page.evaluate("scrollTo(0, 0)")
            for k in range(query.count("pin=")):
                page.locator(".unpin").nth(k).wait_for()
            page.wait_for_timeout(900)
            page.screenshot(path=str(PICTURES / f"{name}.png"), full_page=window is GALLERY)
            context.close()
            reduce(PICTURES / f"{name}.png")
            print(PICTURES / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
