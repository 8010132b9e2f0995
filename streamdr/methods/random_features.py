"""Kernel PCA of random features: a baseline, which needs no landmarks and many more features."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.accumulators import KernelMoments
from streamdr.blocks import MatrixSpec
from streamdr.features import FourierFeatures
from streamdr.methods.base import Pass
from streamdr.methods.kernel_axes import Negative, Whitening, in_both, nystrom_axes, too_coarse
from streamdr.methods.kernel_kinds import Named
from streamdr.methods.kernel_parameters import kind_of
from streamdr.methods.kernel_pca_model import KernelPCAModel
from streamdr.methods.kernel_routes import is_single, labour
from streamdr.methods.nystrom import Fit, draw

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca import KernelPCA


def by_random_features(method: KernelPCA, data: MatrixSpec, start: KernelPCAModel | None) -> Fit:
    """Draw features, or take up those of an earlier model, and sum them in one pass."""
    m, rng = method.most_landmarks(data), np.random.default_rng(method.random_state)
    single, coarse = is_single(method, data), False
    identity = Whitening(np.eye(m), np.eye(m), Negative())
    if start is not None and start.frequencies is not None and start.phases is not None:
        kernel = start.named
        features = FourierFeatures(start.frequencies, start.phases, start.origin)
        coarse = single and start.double
    else:
        pool = yield from draw(method, data)
        kernel = cast(Named, kind_of(method, data, pool)).kernel
        features = FourierFeatures.drawn(kernel, m, pool.mean, rng)
        some = pool.where(slice(None, None, max(1, len(pool) // m)))
        coarse = single and too_coarse(*in_both(features, np.zeros(m), some), identity.matrix)
    double = coarse or method.precision == "double"
    empty = KernelMoments(features, [np.zeros(m)], double=double)
    label, work = f"{m:,} random features", labour(m, data.n_cols)
    full = cast(KernelMoments, (yield Pass(empty, label=label, labour=work)))
    axes = nystrom_axes(
        full.moments(),
        identity,
        method.n_components,
        whitened=True,
        single=single and not coarse,
        centred=False,
    )
    fields = {**axes.fields(), **Named(kernel, features.origin).fields(), "captured_trace": None}
    return KernelPCAModel(
        approximation="random_features",
        **(fields | {"trace_error": None, "mean_coefficients": None}),
        frequencies=features.frequencies,
        phases=features.phases,
        wanted=method.n_components,
        double=double,
    )
