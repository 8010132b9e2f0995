"""The fitted attributes of an estimator: the fields and properties of its model, with an underscore."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from functools import cache

from streamdr.core.docstrings import field_docstrings, sections
from streamdr.core.method import MapsColumns, MapsSparse, Method, Model, SelectsColumns

_PROTOCOL = {*dir(Model), *dir(MapsColumns), *dir(MapsSparse), *dir(SelectsColumns), "pictures"}
"""The internal protocol of models. These attributes are available, but not listed."""

_COMMON = """\
model_ : Model
    The fitted model: an immutable dataclass, whose fields are the attributes here.
n_features_in_ : int
    The number of features in `fit`.
feature_axes_ : FeatureAxes or None
    The axes of the features, if they are labelled, weighted, or some of them were left out.
feature_names_in_ : ndarray of str
    The names of the features, if the input has names for all of them.
n_samples_seen_ : int
    The number of rows that the model was fitted to.
n_rows_ : int
    The same number, which is saved with the model."""

_INCREMENTAL = """\
stream_ : OnlineFit
    The state of `partial_fit`; present after `partial_fit` only."""


@dataclass(frozen=True)
class FittedAttribute:
    """An attribute of a fitted estimator: its annotation, its dimensions and its description."""

    annotation: str
    dims: tuple[str, ...]
    text: str

    @property
    def kind(self) -> str:
        """The type as the documentation writes it: `ndarray (component, feature) or None`."""
        array = f"ndarray ({', '.join(self.dims)})" if self.dims else "ndarray"
        return self.annotation.replace("Array", array).replace(" | ", " or ")


@cache
def fitted_attributes(model: type) -> dict[str, FittedAttribute]:
    """Return the attributes that a class of models gives its estimator, by name: fields, then properties."""
    texts = field_docstrings(model)
    found = {
        each.name: FittedAttribute(str(each.type), each.metadata.get("dims", ()), texts.get(each.name, ""))
        for each in fields(model)
    }
    for name in dir(model):
        value = inspect.getattr_static(model, name)
        if isinstance(value, property) and not name.startswith("_"):
            annotation = str((value.fget.__annotations__ if value.fget else {}).get("return", "Any"))
            found[name] = FittedAttribute(annotation, (), (value.__doc__ or "").split("\n\n")[0])
    return {f"{name}_": each for name, each in found.items() if name not in _PROTOCOL}


def documented(text: str, method: type[Method]) -> str:
    """Return the docstring of a method with the fitted attributes after its parameters."""
    attributes = [
        f"{name} : {each.kind}\n    {each.text}"
        for name, each in fitted_attributes(method.model).items()
        if each.text
    ]
    attributes += [_COMMON, _INCREMENTAL] if method.tags.incremental else [_COMMON]
    rest = sections(text)
    parts: dict[str, str] = {name: rest.pop(name) for name in ("", "Parameters") if name in rest}
    parts |= {"Attributes": "\n".join(attributes), **rest}
    return "\n\n".join(
        body if not name else f"{name}\n{'-' * len(name)}\n{body}" for name, body in parts.items()
    )
