"""The chain of estimators: methods one after another, fitted to data of any size and saved as one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch
from sklearn.utils._repr_html.estimator import _VisualBlock
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from streamdr.core.mapping import class_fills_missing, columns_kept, mapped_axes
from streamdr.core.method import Supervised
from streamdr.data.labelled.opening import UNLABELLED
from streamdr.errors import ParameterError
from streamdr.estimators.base import Estimator
from streamdr.estimators.capabilities import Denoise, Impute, InverseTransform, LatentPosterior, Likelihood
from streamdr.estimators.classifiers import Classifier
from streamdr.estimators.datasets import tree_of
from streamdr.estimators.fitted import FittedAttribute, fitted_attributes
from streamdr.methods.chain import Chain as ChainMethod
from streamdr.methods.chain import chain_model, chain_of, member_names, parameters_of

Member: TypeAlias = Estimator | tuple[str, Estimator]


def _of_last(function: Callable[..., Any], *needed: str) -> Any:
    """Return an operation of the last member's estimator, which does it with the model of the whole chain.

    The chain has it if the member has, and if its model has one of the operations that are needed.
    """
    name = function.__name__

    def has(chain: Chain) -> bool:
        kind = chain._method.model
        return hasattr(type(chain._last), name) and any(hasattr(kind, each) for each in needed or (name,))

    @wraps(function)
    def operation(self: Chain, *given: Any, **named: Any) -> Any:
        return getattr(type(self._last), name)(self, *given, **named)

    operation.__qualname__ = f"Chain.{name}"
    return available_if(has)(operation)


class Chain(Estimator):
    """Estimators one after another, each fitted to the rows as those before it leave them.

    The rows go through the chain block by block, and nothing in between is stored. The model is saved whole,
    and `streamdr.load_model` returns the chain. What can be done with it besides `transform`, such as
    `predict`, follows from its last member.

    Parameters
    ----------
    steps : list of estimators, or of (name, estimator)
        Estimators of streamdr. A name is by default that of the method, with a number where it is repeated.

    Attributes
    ----------
    model_ : Model
        The fitted model: an immutable dataclass of the models of all members.
    n_features_in_ : int
        The number of features in `fit`.
    feature_names_in_ : ndarray of str
        The names of the features, if the input has names for all of them.
    n_samples_seen_ : int
        The number of rows that the model was fitted to.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> counts = np.random.default_rng(0).poisson(5.0, (50, 6))
    >>> chain = streamdr.Chain([streamdr.NormalizeTotal(), streamdr.Log1p(), streamdr.PCA(2)])
    >>> chain.fit_transform(counts).shape
    (50, 2)
    >>> chain["normalize_total"].target_sum_ == np.median(counts.sum(axis=1))
    np.True_
    >>> chain.set_params(pca__n_components=3).fit(counts)[-1].components_.shape
    (3, 6)
    >>> chain[:2].transform(counts).shape
    (50, 6)
    """

    _method_class: ClassVar[Any] = ChainMethod

    def __init__(self, steps: Sequence[Member]) -> None:
        self.steps = steps

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **labelled: Any) -> Self:
        """Fit every member to the rows as those before it leave them, and return the chain.

        Parameters
        ----------
        X : array, sparse matrix, data frame, AnnData, path, address, zarr or dask array, DataArray or Dataset
            The rows. Data that is not in memory is streamed.
        y : array, path, zarr array or dask array
            A label for each row, for methods that learn from labels; others ignore it.
        sample_weight : array, path, zarr array or dask array
            The weight of each row: a row of weight 2 counts like two equal rows.
        **labelled
            `variable`, `sample_dims`, `select`, `feature_weights`, `min_observed` and `balance_variables`, as
            in `open_source`.

        Returns
        -------
        self : Chain
            The chain itself.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.Chain([streamdr.Standardise(), streamdr.PCA(2)]).fit(X)["pca"].components_.shape
        (2, 3)
        """
        if sample_weight is not None and not self._method.tags.sample_weight:
            without = [name for name, each in self.members if not each._method.tags.sample_weight]
            raise ParameterError("sample_weight", f"{', '.join(without)} has no weights of rows")
        return super().fit(X, y, sample_weight, **labelled)

    @property
    def members(self) -> list[tuple[str, Estimator]]:
        """The name of each member, and the member as it was given."""
        given = self.steps
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise ParameterError("steps", "a list of estimators, or of (name, estimator), is needed")
        pairs = [each if isinstance(each, tuple) and len(each) == 2 else (None, each) for each in given]
        for name, each in pairs:
            if not isinstance(each, Estimator) or isinstance(each, Chain):
                raise ParameterError(
                    "steps",
                    f"{each!r} is no single estimator of streamdr; a Pipeline of scikit-learn takes any",
                )
            plain = isinstance(name, str) and name.isidentifier() and "__" not in name and name != "steps"
            if name is not None and not plain:
                raise ParameterError("steps", f"{name!r} cannot be a name: take letters, digits and single _")
        names = member_names([each._method for _, each in pairs], [name for name, _ in pairs])
        if len(set(names)) < len(names):
            raise ParameterError("steps", f"two members have one name; they are called {', '.join(names)}")
        return [(name, each) for name, (_, each) in zip(names, pairs, strict=True)]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with those of members as `pca__n_components`.

        Parameters
        ----------
        deep : bool
            Whether members and their parameters are returned too.

        Returns
        -------
        parameters : dict
            The values by name.

        Examples
        --------
        >>> import streamdr
        >>> streamdr.Chain([streamdr.Log1p(), streamdr.PCA(2)]).get_params()["pca__n_components"]
        2
        """
        found: dict[str, Any] = {"steps": self.steps}
        for name, member in self.members if deep else ():
            found[name] = member
            found |= {f"{name}__{key}": value for key, value in member.get_params().items()}
        return found

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, also of members, as in `chain.set_params(pca__n_components=20)`.

        Parameters
        ----------
        **parameters : object
            `steps`, a new estimator by the name of its member, or a parameter of a member.

        Returns
        -------
        self : Chain
            The chain itself.

        Examples
        --------
        >>> import streamdr
        >>> streamdr.Chain([streamdr.Log1p(), streamdr.PCA(2)]).set_params(pca__n_components=3)
        Chain(steps=[Log1p(), PCA(n_components=3)])
        """
        before = self.steps
        if "steps" in parameters:
            self.steps = parameters.pop("steps")
        members = dict(self.members) if parameters else {}
        replaced = {name: parameters.pop(name) for name in members if name in parameters}
        if replaced:
            members |= replaced
            self.steps = list(members.items())
        for key, value in parameters.items():
            name, found, own = key.partition("__")
            if name not in members or not found:
                raise ParameterError(key, f"is none of this chain, whose members are {', '.join(members)}")
            members[name].set_params(**{own: value})
        if self.steps is not before:
            self.__dict__.pop("model_", None)  # it is that of other members
        return self

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def named_steps(self) -> Bunch:
        """The members by name, also as attributes: fitted, if the chain is."""
        return Bunch(**{name: self[name] for name, _ in self.members})

    def __getitem__(self, key: int | str | slice) -> Estimator:
        """Return a member by number or name, or the chain of some: fitted, if the chain is."""
        names = [name for name, _ in self.members]
        if isinstance(key, slice):
            return self._part(key)
        if isinstance(key, str):
            if key not in names:
                raise KeyError(f"{key!r} is no member of this chain, which has {', '.join(names)}")
            key = names.index(key)
        if "model_" not in vars(self):
            return self.members[key][1]
        return self._fitted_members()[key]

    def _part(self, key: slice) -> Chain:
        """Return the chain of some members. It may end in a step, unlike a chain that is to be fitted."""
        if key.step not in (None, 1):
            raise ValueError("members of a chain follow one another: take a slice with a step of 1")
        chosen = self.members[key]
        if not chosen:
            raise IndexError(f"none of the {len(self)} members is in this slice")
        part: Chain = clone(self).set_params(steps=chosen)  # with the output of `set_output`
        if "model_" in vars(self):
            part.model_ = chain_model([name for name, _ in chosen], self.model_.models[key])
            own = vars(self._fitted_members()[key][0])
            for name in ("n_rows_", "n_features_in_", "feature_axes_", "feature_names_in_"):
                if name in own:
                    setattr(part, name, own[name])
            if key.indices(len(self))[0] == 0:
                part._labelled = vars(self).get("_labelled", UNLABELLED)
        return part

    @property
    def _method(self) -> ChainMethod:
        names = [name for name, _ in self.members]
        return chain_of([each._method for _, each in self.members], names)

    @property
    def _parameters(self) -> dict[str, Any]:
        return parameters_of(self._method)

    @property
    def _last(self) -> Estimator:
        return self.members[-1][1]

    def _fitted_members(self, names: Sequence[str] | None = None) -> list[Estimator]:
        """Return the members as fitted estimators. `names` are those of the features, if the fit had none."""
        own = vars(self).get("feature_names_in_")
        features = names if own is None else [str(name) for name in own]
        axes = self._axes
        found = []
        for (_, member), model in zip(self.members, self.model_.models, strict=True):
            each = clone(member)
            each.model_, each.n_rows_, each.feature_axes_ = model, self.n_rows_, axes
            each.n_features_in_ = model.n_features if axes is None else axes.n_features
            if features is not None:
                each.feature_names_in_ = np.array(features, dtype=object)
            if features is not None or columns_kept(model) is None:
                features = [str(name) for name in each.get_feature_names_out()]
            axes = mapped_axes(axes, model)
            found.append(each)
        return found

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns of the embedding: those of the last member.

        Parameters
        ----------
        input_features : array of str or None
            The names of the features, for columns that are features.

        Returns
        -------
        names : ndarray of str
            The name of each column.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> streamdr.Chain([streamdr.Standardise(), streamdr.PCA(2)]).fit(X).get_feature_names_out().tolist()
        ['pca0', 'pca1']
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return self._fitted_members(names)[-1].get_feature_names_out()

    def to_xarray(self) -> Any:
        """Return the fitted models as an xarray DataTree, with a data set for each member.

        Returns
        -------
        tree : xarray.DataTree
            A copy of the models, by the names of the members.

        Raises
        ------
        ImportError
            If xarray is not installed.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> tree = streamdr.Chain([streamdr.Standardise(), streamdr.PCA(2)]).fit(X).to_xarray()
        >>> tree["pca/components"].dims
        ('component', 'feature')
        """
        check_is_fitted(self)
        names = [name for name, _ in self.members]
        datasets = [each.to_xarray() for each in self._fitted_members()]
        return tree_of(dict(zip(names, datasets, strict=True)))

    def to_sklearn(self) -> Any:
        """Return the fitted chain as a plain Pipeline of scikit-learn, of the counterparts of its members.

        Returns
        -------
        pipeline : Pipeline
            Fitted. It maps rows by `transform`, and predicts if the chain does.

        Raises
        ------
        ParameterError
            If scikit-learn has nothing that gives the numbers of a member.

        Examples
        --------
        >>> import numpy as np, streamdr
        >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
        >>> chain = streamdr.Chain([streamdr.Log1p(), streamdr.PCA(2)]).fit(X)
        >>> bool(np.allclose(chain.to_sklearn().transform(X), chain.transform(X)))
        True
        """
        check_is_fitted(self)
        names = [name for name, _ in self.members]
        members = self._fitted_members()
        for each in members[1:]:  # their rows come from counterparts, which give them no names
            each.__dict__.pop("feature_names_in_", None)
        return Pipeline([(name, each.to_sklearn()) for name, each in zip(names, members, strict=True)])

    @property
    def _allows_nan(self) -> bool:
        if "model_" in vars(self):
            return bool(self.model_.allow_nan)
        for _, member in self.members:
            if not member._allows_nan:
                return False
            if class_fills_missing(member._method_class.model):
                break
        return True

    @property
    def _takes_counts(self) -> bool:
        return self.members[0][1]._takes_counts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        last = self._last.__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = last.estimator_type, last.classifier_tags
        tags.target_tags = last.target_tags
        tags.target_tags.required = isinstance(self._method, Supervised)
        tags.input_tags.pairwise = self.members[0][1].__sklearn_tags__().input_tags.pairwise
        return tags

    def _sk_visual_block_(self) -> Any:
        names, members = zip(*self.members, strict=True)
        return _VisualBlock("serial", members, names=names, name_details=[str(each) for each in members])

    @property
    def _class_names(self) -> list[str]:
        return [str(label) for label in self.classes_]

    @property
    def _learned(self) -> Mapping[str, FittedAttribute]:
        """What the last member has learned: attributes of the chain too."""
        kind: type = type(self.model_.last)
        return fitted_attributes(kind)

    def __getattr__(self, name: str) -> Any:
        if "model_" in vars(self) and name in self._learned:
            return getattr(self._fitted_members()[-1], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        learned = self._learned if "model_" in vars(self) else ()
        return sorted({*object.__dir__(self), *learned})

    _from_scores = InverseTransform._from_scores
    inverse_transform = _of_last(InverseTransform.inverse_transform)
    denoise = _of_last(Denoise.denoise)
    impute = _of_last(Impute.impute)
    latent = _of_last(LatentPosterior.latent)
    score_samples = _of_last(Likelihood.score_samples)
    score = _of_last(Likelihood.score, "predict_proba", "score_samples")
    predict = _of_last(Classifier.predict)
    predict_proba = _of_last(Classifier.predict_proba)
    predict_log_proba = _of_last(Classifier.predict_log_proba)
    decision_function = _of_last(Classifier.decision_function)
