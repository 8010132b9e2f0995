"""Write the files that are derived from the registry of methods: `make derived`.

These are the JSON Schemas in `configs/`, the methods of `configs/gallery.yaml`, the tables of docs/CONFIG.md,
the names of plots in `streamdr plot --help`, and the stubs of the estimators for editors and type checkers.
`--check` writes nothing, and fails if any of them is not current.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from streamdr.config import comparison_schema, schema
from streamdr.config.comparisons import ComparisonOutput
from streamdr.config.keys import Key, keys_of, summary
from streamdr.config.row_selection import RowSelection
from streamdr.config.sections import ExecutionSection, Input, Output
from streamdr.core.execution import TLS, Adaptive, Cluster
from streamdr.core.method import Method
from streamdr.data.examples.datasets import Example
from streamdr.data.examples.synthetic import Synthetic
from streamdr.estimators import ESTIMATORS, Estimator
from streamdr.estimators.fitted import fitted_attributes
from streamdr.methods import METHODS
from streamdr.workflow import plotting

ROOT = Path(__file__).parents[1]
SECTIONS: dict[str, type] = {
    "input": Input,
    "input.synthetic": Synthetic,
    "input.example": Example,
    RowSelection.name: RowSelection,
    **METHODS,
    "output": Output,
    "output of a comparison": ComparisonOutput,
    "execution": ExecutionSection,
    "execution.cluster": Cluster,
    "execution.cluster.adaptive": Adaptive,
    "execution.tls": TLS,
}
STUB = "# Written by `make derived`.\n\n"
_NAMEABLE = {"Array", "int", "float", "bool", "str", "list", "Literal", "None"}
"""The types that the stub of the estimators can name."""


def derived() -> dict[Path, str]:
    """Return every derived file with its content."""
    texts = {
        "configs/schema.json": _json(schema()),
        "configs/comparison-schema.json": _json(comparison_schema()),
        "configs/gallery.yaml": _gallery((ROOT / "configs/gallery.yaml").read_text()),
        "docs/CONFIG.md": _reference((ROOT / "docs/CONFIG.md").read_text()),
        "streamdr/cli/plot_kinds.py": _plot_kinds(),
        "streamdr/__init__.pyi": _public_stub(),
        "streamdr/estimators/__init__.pyi": _estimator_stub(),
    }
    return {ROOT / name: text for name, text in texts.items()}


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _gallery(page: str) -> str:
    """Return the configuration of the gallery, with at least one entry for every method."""
    entries = [
        {"name": name, **({"as": entry["as"]} if "as" in entry else {}), **entry}
        for name, method in METHODS.items()
        for entry in method.gallery
    ]
    lines = [
        "  - {" + ", ".join(f"{key}: {value}" for key, value in entry.items()) + "}" for entry in entries
    ]
    return re.sub(r"(?m)(^methods:.*\n)(?:  - .*\n)+", lambda found: found[1] + "\n".join(lines) + "\n", page)


def _with_table(table: str, found: re.Match[str]) -> str:
    return found[1] + table


def _reference(page: str) -> str:
    """Return the reference of configurations, with the table of every section. A new method comes last."""
    for name, kind in SECTIONS.items():
        table = "| Key | Default | Meaning |\n|---|---|---|\n" + "".join(map(_row, keys_of(kind).values()))
        section = re.compile(rf"(?ms)(^#+ {re.escape(name)}\n(?:(?!^#).)*?)^\| Key .*?(?=^[^|]|\Z)")
        if section.search(page):
            page = section.sub(partial(_with_table, table), page, count=1)
        else:
            page = page.replace(
                "\n## output\n", f"\n### {name}\n\n{summary(kind)}\n\n{table}\n## output\n", 1
            )
    return page


def _row(key: Key) -> str:
    default = "*required*" if key.required else f"`{json.dumps(key.default)}`"
    return f"| `{key.name}` | {default} | {key.description.replace('|', chr(92) + '|')} |\n"


def _plot_kinds() -> str:
    """Return a module with the names of all plots, which imports nothing."""
    names = "".join(f'    "{name}",\n' for name in plotting.kinds())
    about = '"""The kinds of plots. The help lists them without importing the methods that draw them."""'
    return f"{STUB}{about}\n\nfrom __future__ import annotations\n\nPLOT_KINDS = (\n{names})\n"


def _estimator_stub() -> str:
    """Return the stub of the estimators: their parameters, their capabilities and their fitted attributes."""
    bases = {base for estimator in ESTIMATORS.values() for base in estimator.__bases__} - {Estimator}
    lines = [
        "from typing import Any, Literal",
        "",
        "from streamdr.core.blocks import Array",
        "from streamdr.estimators.base import Estimator as Estimator",
        "from streamdr.estimators.chain import Chain as Chain",
        "from streamdr.estimators.mds import MDS as MDS",
        "from streamdr.estimators.registry import ESTIMATORS as ESTIMATORS",
        "from streamdr.estimators.registry import load_model as load_model",
        *sorted(f"from {base.__module__} import {base.__name__}" for base in bases),
        "",
        *("\n".join(_estimator_class(method)) + "\n" for method in METHODS.values()),
    ]
    return STUB + "\n".join(lines)


def _estimator_class(method: type[Method]) -> Iterator[str]:
    """Yield the lines of the class of an estimator in the stub."""
    yield f"class {method.__name__}("
    yield from (f"    {base.__name__}," for base in ESTIMATORS[method.name].__bases__)
    yield "):"
    parameters = list(inspect.signature(method).parameters.values())
    yield from (f"    {each.name}: {_named(each.annotation)}" for each in parameters)
    yield "    def __init__("
    yield "        self,"
    for number, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and (number == 0 or parameters[number - 1].kind is not each.kind):
            yield "        *,"
        default = "" if each.default is each.empty else " = ..."
        yield f"        {each.name}: {_named(each.annotation)}{default},"
    yield "    ) -> None: ..."
    for name, attribute in fitted_attributes(method.model).items():
        if not hasattr(ESTIMATORS[method.name], name):  # a property of the estimator has a type already
            yield f"    {name}: {_named(attribute.annotation)}"
    yield "    def __getattr__(self, name: str) -> Any: ..."


def _named(annotation: str) -> str:
    """Return an annotation for the stub; Any if the stub would have to import one of its types."""
    text = annotation.replace("'", '"')
    return text if _NAMEABLE.issuperset(re.findall(r"\w+", re.sub('"[^"]*"', "", text))) else "Any"


def _public_stub() -> str:
    """Return the stub of the public names of the package."""
    estimators = sorted(["MDS", "Chain", "load_model", *(method.__name__ for method in METHODS.values())])
    lines = [
        "from streamdr import errors as errors",
        "from streamdr import plots as plots",
        "from streamdr import testing as testing",
        "from streamdr.core.addresses import storage_options as storage_options",
        "from streamdr.core.execution import execution as execution",
        "from streamdr.data import open_source as open_source",
        *(f"from streamdr.estimators import {name} as {name}" for name in estimators),
        "from streamdr.statistics.splits import folds as folds",
        "",
        "IMPORTED_AT: float",
        "__version__: str",
        "__all__: list[str]",
    ]
    return STUB + "\n".join(lines) + "\n"


def main(check: bool) -> int:
    """Write the files that are not current, or only list them; return 1 if a check finds any."""
    stale = {path: text for path, text in derived().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        if not check:
            path.write_text(text)
        print(f"{path.relative_to(ROOT)}: {'not current: make derived' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
