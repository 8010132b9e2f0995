"""Kernel PCA of random Fourier features: no landmarks, but many more features."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Pass, cost_factor
from streamdr.methods.kernel_pca.eigen import (
    NegativeEigenvalues,
    Whitening,
    loses_precision,
    moments_in_both_precisions,
    nystrom_axes,
)
from streamdr.methods.kernel_pca.evaluators import NamedKernel
from streamdr.methods.kernel_pca.features import FourierFeatures
from streamdr.methods.kernel_pca.model import KernelPCAModel
from streamdr.methods.kernel_pca.moments import KernelMoments
from streamdr.methods.kernel_pca.nystrom import Fit, draw_pool
from streamdr.methods.kernel_pca.parameters import kernel_evaluator
from streamdr.methods.kernel_pca.routes import is_single

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca.kernel_pca import KernelPCA


def by_random_features(method: KernelPCA, data: MatrixSpec, start: KernelPCAModel | None) -> Fit:
    """Draw random features, or reuse those of an earlier model, and sum their moments in one pass."""
    m, rng = method.most_landmarks(data), np.random.default_rng(method.random_state)
    if start is not None and start.phases is not None:
        m = len(start.phases)  # fewer, if there were fewer rows then
    single, coarse = is_single(method, data), False
    identity = Whitening(np.eye(m), np.eye(m), NegativeEigenvalues())
    if start is not None and start.frequencies is not None and start.phases is not None:
        kernel = start.named
        features = FourierFeatures(start.frequencies, start.phases, start.origin)
        coarse = single and start.double
    else:
        pool = yield from draw_pool(method, data)
        kernel = cast(NamedKernel, kernel_evaluator(method, data, pool)).kernel
        features = FourierFeatures.drawn(kernel, m, pool.mean, rng)
        some = pool.where(slice(None, None, max(1, len(pool) // m)))
        coarse = single and loses_precision(
            *moments_in_both_precisions(features, np.zeros(m), some), identity.matrix
        )
    double = coarse or method.precision == "double"
    empty = KernelMoments(features, [np.zeros(m)], double=double)
    label, work = f"{m:,} random features", cost_factor(m, data.n_cols)
    full = cast(KernelMoments, (yield Pass(empty, label=label, cost_factor=work)))
    axes = nystrom_axes(
        full.moments(),
        identity,
        method.n_components,
        whitened=True,
        single=single and not coarse,
        centred=False,
    )
    fields = {**axes.fields(), **NamedKernel(kernel, features.origin).fields(), "captured_trace": None}
    return KernelPCAModel(
        approximation="random_features",
        **(fields | {"trace_error": None, "mean_coefficients": None}),
        frequencies=features.frequencies,
        phases=features.phases,
        wanted=method.n_components,
        double=double,
    )
