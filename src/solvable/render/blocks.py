"""Docstrings cut into blocks: paragraphs, lists and displayed equations. Imports nothing."""

from __future__ import annotations


def blocks(doc: str) -> list[list[str]]:
    """Split text into blocks: paragraphs, lists, indented equations (which may contain blank lines).

    >>> blocks("Words\\nwords:\\n- one\\n\\n    x = 1")
    [['Words', 'words:'], ['- one'], ['    x = 1']]
    """
    found: list[list[str]] = [[]]
    for line in doc.splitlines():
        indented, open = line.startswith("    "), found[-1]
        if not line.strip():
            found.append([])
        elif open and line.startswith("- ") and not open[0].startswith("- "):
            found.append([line])
        elif indented and not open and len(found) > 1 and is_displayed(found[-2]):
            found.pop()
            found[-1] += ["", line]
        else:
            open.append(line)
    return [b for b in found if b]


def is_displayed(lines: list[str]) -> bool:
    """Whether a block is a displayed equation."""
    return bool(lines) and lines[0].startswith("    ")


def is_example(lines: list[str]) -> bool:
    """Whether a block is an example of the interpreter."""
    return bool(lines) and lines[0].lstrip().startswith(">>> ")


def items(lines: list[str]) -> list[str]:
    """The items of a list, one line each; empty if the block is no list.

    >>> items(["- one", "  more", "- two"])
    ['one more', 'two']
    """
    if not lines or not lines[0].startswith("- "):
        return []
    found: list[str] = []
    for line in lines:
        if line.startswith("- "):
            found.append(line[2:].strip())
        else:
            found[-1] += " " + line.strip()
    return found
