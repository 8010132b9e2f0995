"""The methods, by the name that a configuration gives them.

A family of methods is a folder here, and a line in `FAMILIES`, which registers the `METHODS` of the folder.
Estimators, public names, schemas, tables, laws, plots and reports are derived from the registry.
"""

from __future__ import annotations

from importlib import import_module

from streamdr.core.method import Method

FAMILIES = (
    "pca",
    "ppca",
    "kernel_pca",
    "lda",
    "selection",
    "mds",
    "som",
    "steps",
)

METHODS: dict[str, type[Method]] = {
    method.name: method
    for family in FAMILIES
    for method in import_module(f"streamdr.methods.{family}").METHODS
}
