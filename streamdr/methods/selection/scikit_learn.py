"""The counterpart of a selection in scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamdr.core.scikit_learn import Step, taking

if TYPE_CHECKING:
    from streamdr.methods.selection.model import SelectionModel


def selection_steps(model: SelectionModel) -> list[Step]:
    """Return the step that takes the selected columns."""
    return [taking(model.reads, model.n_features)]
