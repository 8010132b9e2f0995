"""A parser of docstrings in the format of numpydoc."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from itertools import pairwise

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w+) ?:.*\n((?: .*\n|\n)*)", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """The sections of a docstring by their headings, in order; the text before them is under ""."""
    parts = _HEADING.split(inspect.cleandoc(text) + "\n")
    return {
        "": parts[0].strip("\n"),
        **dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2]), strict=True)),
    }


def entries(section: str) -> dict[str, str]:
    """The entries `name : type` of a section, each with its description on one line."""
    return {name: " ".join(words.split()) for name, words in _ENTRY.findall(section + "\n")}


def field_docstrings(kind: type) -> dict[str, str]:
    """The strings that follow the fields of a class in its source, on one line each.

    Python does not keep them, so the source is read. Without it, there are none.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, after in pairwise(body):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[field.target.id] = " ".join(str(after.value.value).split())
    return found
