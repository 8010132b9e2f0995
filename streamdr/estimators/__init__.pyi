# Written by `make derived`.

from typing import Any, Literal

from streamdr.core.blocks import Array
from streamdr.estimators.base import Estimator as Estimator
from streamdr.estimators.chain import Chain as Chain
from streamdr.estimators.mds import MDS as MDS
from streamdr.estimators.registry import ESTIMATORS as ESTIMATORS
from streamdr.estimators.registry import load_model as load_model
from streamdr.estimators.capabilities import Covariance
from streamdr.estimators.capabilities import Denoise
from streamdr.estimators.capabilities import Impute
from streamdr.estimators.capabilities import InverseTransform
from streamdr.estimators.capabilities import LatentPosterior
from streamdr.estimators.capabilities import Likelihood
from streamdr.estimators.capabilities import PartialFit
from streamdr.estimators.capabilities import Precision
from streamdr.estimators.capabilities import Predict
from streamdr.estimators.capabilities import PredictProba
from streamdr.estimators.capabilities import Sampling
from streamdr.estimators.classifiers import Classifier
from streamdr.estimators.registry import Unweighted
from streamdr.estimators.selectors import Selector

class PCA(
    PartialFit,
    InverseTransform,
    Denoise,
    Likelihood,
    Covariance,
    Precision,
    Estimator,
):
    n_components: int | float | Literal["mle", "parallel", "broken_stick"] | None
    whiten: Literal["pca", "zca"] | bool | None
    scale: bool
    center: bool
    solver: Literal["auto", "covariance", "gram", "krylov"]
    ddof: int
    random_state: int
    precision: Literal["mixed", "double"]
    n_oversamples: int
    max_passes: int
    tol: float
    rotation: Literal["varimax", "promax"] | None
    n_rotated: int | None
    rotation_power: float
    n_effective: float | None
    n_bootstrap: int
    bootstrap_rows: int | None
    def __init__(
        self,
        n_components: int | float | Literal["mle", "parallel", "broken_stick"] | None = ...,
        *,
        whiten: Literal["pca", "zca"] | bool | None = ...,
        scale: bool = ...,
        center: bool = ...,
        solver: Literal["auto", "covariance", "gram", "krylov"] = ...,
        ddof: int = ...,
        random_state: int = ...,
        precision: Literal["mixed", "double"] = ...,
        n_oversamples: int = ...,
        max_passes: int = ...,
        tol: float = ...,
        rotation: Literal["varimax", "promax"] | None = ...,
        n_rotated: int | None = ...,
        rotation_power: float = ...,
        n_effective: float | None = ...,
        n_bootstrap: int = ...,
        bootstrap_rows: int | None = ...,
    ) -> None: ...
    mean_: Array
    components_: Array
    explained_variance_: Array
    total_variance_: float
    reconstruction_error_: float
    noise_variance_: float
    n_samples_: float
    ddof_: int
    rank_: int
    solver_: str
    whiten_: str | None
    scale_: Array | None
    residuals_: Array | None
    center_: bool
    var_: Array | None
    rotation_: str | None
    rotation_matrix_: Array | None
    principal_components_: Array | None
    principal_variance_: Array | None
    n_effective_: float | None
    criterion_: str | None
    candidate_variance_ratio_: Array | None
    noise_variance_ratio_: Array | None
    n_bootstrap_: int | None
    n_bootstrap_blocks_: int | None
    bootstrap_error_: Array | None
    bootstrap_interval_: Array | None
    bootstrap_congruence_: Array | None
    bootstrap_sign_: Array | None
    explained_variance_error_: Array | None
    explained_variance_ratio_: Array
    multiplets_: Any
    n_components_: int
    score_correlation_: Array | None
    singular_values_: Array
    def __getattr__(self, name: str) -> Any: ...

class PPCA(
    PartialFit,
    InverseTransform,
    Impute,
    LatentPosterior,
    Likelihood,
    Sampling,
    Covariance,
    Precision,
    Estimator,
):
    n_components: int | list[int]
    method: Literal["auto", "closed_form", "em", "minibatch"]
    batch_rows: int | None
    tol: float
    append_tol: float
    max_iter: int
    ridge: float
    holdout: float
    random_state: int
    solver: Literal["auto", "covariance", "gram", "krylov"]
    def __init__(
        self,
        n_components: int | list[int] = ...,
        *,
        method: Literal["auto", "closed_form", "em", "minibatch"] = ...,
        batch_rows: int | None = ...,
        tol: float = ...,
        append_tol: float = ...,
        max_iter: int = ...,
        ridge: float = ...,
        holdout: float = ...,
        random_state: int = ...,
        solver: Literal["auto", "covariance", "gram", "krylov"] = ...,
    ) -> None: ...
    mean_: Array
    components_: Array
    explained_variance_: Array
    noise_variance_: float
    n_samples_: float
    n_observed_: float
    solver_: str
    log_likelihood_: float
    log_likelihoods_: Array
    converged_: bool
    change_: float
    empty_rows_: int
    constant_features_: int
    new_features_: int
    held_out_: Array | None
    candidates_: Array | None
    criteria_: Array | None
    anchor_mean_: Array | None
    anchor_components_: Array | None
    anchor_variance_: Array | None
    anchor_noise_: float
    anchor_: Any
    bic_: float
    explained_variance_ratio_: Array
    factors_: Any
    loadings_: Array
    missing_: float
    n_components_: int
    n_iter_: int
    n_parameters_: int
    total_variance_: float
    def __getattr__(self, name: str) -> Any: ...

class PPCAMixture(
    Impute,
    Likelihood,
    Predict,
    PredictProba,
    Sampling,
    Covariance,
    Estimator,
):
    n_components: int | list[int]
    n_mixtures: int | list[int]
    tol: float
    max_iter: int
    ridge: float
    variance_floor: float
    random_state: int
    def __init__(
        self,
        n_components: int | list[int] = ...,
        n_mixtures: int | list[int] = ...,
        *,
        tol: float = ...,
        max_iter: int = ...,
        ridge: float = ...,
        variance_floor: float = ...,
        random_state: int = ...,
    ) -> None: ...
    weights_: Array
    means_: Array
    components_: Array
    explained_variance_: Array
    noise_variance_: Array
    n_samples_: float
    n_observed_: float
    log_likelihood_: float
    log_likelihoods_: Array
    converged_: bool
    change_: float
    empty_rows_: int
    new_features_: int
    restarts_: int
    floored_: int
    candidate_components_: Array | None
    candidate_mixtures_: Array | None
    criteria_: Array | None
    bic_: float
    factors_: Any
    missing_: float
    n_components_: int
    n_iter_: int
    n_mixtures_: int
    n_parameters_: int
    def __getattr__(self, name: str) -> Any: ...

class KernelPCA(
    InverseTransform,
    Denoise,
    Estimator,
):
    n_components: int | None
    kernel: Any
    gamma: float | Literal["median"] | None
    sigma: float | None
    degree: int
    coef0: float
    approximation: Literal["auto", "exact", "nystrom", "random_features"]
    n_landmarks: int | float | None
    landmarks: Any
    fit_inverse_transform: bool
    alpha: float
    precision: Literal["mixed", "double"]
    random_state: int
    def __init__(
        self,
        n_components: int | None = ...,
        *,
        kernel: Any = ...,
        gamma: float | Literal["median"] | None = ...,
        sigma: float | None = ...,
        degree: int = ...,
        coef0: float = ...,
        approximation: Literal["auto", "exact", "nystrom", "random_features"] = ...,
        n_landmarks: int | float | None = ...,
        landmarks: Any = ...,
        fit_inverse_transform: bool = ...,
        alpha: float = ...,
        precision: Literal["mixed", "double"] = ...,
        random_state: int = ...,
    ) -> None: ...
    kernel_: str
    approximation_: Literal["exact", "nystrom", "random_features", "sparse"]
    origin_: Array
    coefficients_: Array
    kernel_means_: Array
    eigenvalues_: Array
    n_samples_: float
    total_variance_: float
    gamma_: float | None
    degree_: int
    coef0_: float
    captured_trace_: float | None
    trace_error_: float | None
    wanted_: int | None
    asked_landmarks_: int | None
    negative_eigenvalues_: int
    negative_share_: float
    alpha_: float
    double_: bool
    mean_coefficients_: Array | None
    landmarks_: Array | None
    landmark_rows_: Array | None
    kernel_origin_: Array | None
    pool_: Array | None
    pool_origin_: Array | None
    frequencies_: Array | None
    phases_: Array | None
    dual_coefficients_: Array | None
    candidate_kernels_: list[str] | None
    candidate_errors_: Array | None
    function_: Any
    described_: str
    eigenvectors_: Array
    explained_variance_: Array
    explained_variance_ratio_: Array
    n_components_: int
    n_landmarks_: int
    def __getattr__(self, name: str) -> Any: ...

class SparseKernelPCA(
    InverseTransform,
    Denoise,
    Estimator,
):
    n_components: int
    kernel: Any
    gamma: float | Literal["median"] | None
    sigma: float | None
    degree: int
    coef0: float
    n_candidates: int
    precision: Literal["mixed", "double"]
    random_state: int
    def __init__(
        self,
        n_components: int = ...,
        *,
        kernel: Any = ...,
        gamma: float | Literal["median"] | None = ...,
        sigma: float | None = ...,
        degree: int = ...,
        coef0: float = ...,
        n_candidates: int = ...,
        precision: Literal["mixed", "double"] = ...,
        random_state: int = ...,
    ) -> None: ...
    kernel_: str
    approximation_: Literal["exact", "nystrom", "random_features", "sparse"]
    origin_: Array
    coefficients_: Array
    kernel_means_: Array
    eigenvalues_: Array
    n_samples_: float
    total_variance_: float
    gamma_: float | None
    degree_: int
    coef0_: float
    captured_trace_: float | None
    trace_error_: float | None
    wanted_: int | None
    asked_landmarks_: int | None
    negative_eigenvalues_: int
    negative_share_: float
    alpha_: float
    double_: bool
    mean_coefficients_: Array | None
    landmarks_: Array | None
    landmark_rows_: Array | None
    kernel_origin_: Array | None
    pool_: Array | None
    pool_origin_: Array | None
    frequencies_: Array | None
    phases_: Array | None
    dual_coefficients_: Array | None
    candidate_kernels_: list[str] | None
    candidate_errors_: Array | None
    function_: Any
    described_: str
    eigenvectors_: Array
    explained_variance_: Array
    explained_variance_ratio_: Array
    n_components_: int
    n_landmarks_: int
    def __getattr__(self, name: str) -> Any: ...

class LDA(
    Classifier,
    PartialFit,
    Estimator,
):
    n_components: int | None
    shrinkage: float | Literal["auto"] | None
    priors: list[float] | None
    precision: Literal["mixed", "double"]
    max_classes: int | None
    def __init__(
        self,
        n_components: int | None = ...,
        *,
        shrinkage: float | Literal["auto"] | None = ...,
        priors: list[float] | None = ...,
        precision: Literal["mixed", "double"] = ...,
        max_classes: int | None = ...,
    ) -> None: ...
    priors_: Array
    class_weight_: Array
    means_: Array
    xbar_: Array
    covariance_: Array
    scalings_: Array
    eigenvalues_: Array
    explained_variance_ratio_: Array
    separation_: float
    axes_: Array
    centroids_: Array
    rank_: int
    shrinkage_: Array | None
    between_scatter_: Array
    coef_: Array
    intercept_: Array
    n_classes_: int
    n_components_: int
    n_samples_: float
    within_scatter_: Array
    def __getattr__(self, name: str) -> Any: ...

class SelectMutualInfo(
    Selector,
    InverseTransform,
    Estimator,
):
    k: int | Literal["all", "cv"] | None
    n_bins: int
    discrete: bool | Literal["auto"]
    bias_correction: bool
    task: Any
    n_folds: int
    random_state: int
    precision: Literal["mixed", "double"]
    max_classes: int
    def __init__(
        self,
        k: int | Literal["all", "cv"] | None = ...,
        n_bins: int = ...,
        discrete: bool | Literal["auto"] = ...,
        bias_correction: bool = ...,
        *,
        task: Any = ...,
        n_folds: int = ...,
        random_state: int = ...,
        precision: Literal["mixed", "double"] = ...,
        max_classes: int = ...,
    ) -> None: ...
    support_: Array
    selected_: Array
    scores_: Array
    statistic_: str
    task_: str
    n_samples_: float
    p_values_: Array | None
    classes_: Array | list[str] | None
    learner_: str | None
    scoring_: str | None
    path_features_: Array | None
    path_added_: Array | None
    path_sizes_: Array | None
    path_fold_scores_: Array | None
    cuts_: Array | None
    n_cuts_: Array | None
    discrete_: Array | None
    target_cuts_: Array | None
    path_scores_: Array | None
    pvalues_: Array | None
    def __getattr__(self, name: str) -> Any: ...

class SelectFScore(
    Selector,
    PartialFit,
    InverseTransform,
    Estimator,
):
    k: int | Literal["all", "cv"] | None
    task: Any
    n_folds: int
    random_state: int
    precision: Literal["mixed", "double"]
    max_classes: int
    def __init__(
        self,
        k: int | Literal["all", "cv"] | None = ...,
        *,
        task: Any = ...,
        n_folds: int = ...,
        random_state: int = ...,
        precision: Literal["mixed", "double"] = ...,
        max_classes: int = ...,
    ) -> None: ...
    support_: Array
    selected_: Array
    scores_: Array
    statistic_: str
    task_: str
    n_samples_: float
    p_values_: Array | None
    classes_: Array | list[str] | None
    learner_: str | None
    scoring_: str | None
    path_features_: Array | None
    path_added_: Array | None
    path_sizes_: Array | None
    path_fold_scores_: Array | None
    cuts_: Array | None
    n_cuts_: Array | None
    discrete_: Array | None
    target_cuts_: Array | None
    path_scores_: Array | None
    pvalues_: Array | None
    def __getattr__(self, name: str) -> Any: ...

class SelectCorrelation(
    Selector,
    PartialFit,
    InverseTransform,
    Estimator,
):
    k: int | Literal["all", "cv"] | None
    task: Any
    n_folds: int
    random_state: int
    precision: Literal["mixed", "double"]
    max_classes: int
    def __init__(
        self,
        k: int | Literal["all", "cv"] | None = ...,
        *,
        task: Any = ...,
        n_folds: int = ...,
        random_state: int = ...,
        precision: Literal["mixed", "double"] = ...,
        max_classes: int = ...,
    ) -> None: ...
    support_: Array
    selected_: Array
    scores_: Array
    statistic_: str
    task_: str
    n_samples_: float
    p_values_: Array | None
    classes_: Array | list[str] | None
    learner_: str | None
    scoring_: str | None
    path_features_: Array | None
    path_added_: Array | None
    path_sizes_: Array | None
    path_fold_scores_: Array | None
    cuts_: Array | None
    n_cuts_: Array | None
    discrete_: Array | None
    target_cuts_: Array | None
    path_scores_: Array | None
    pvalues_: Array | None
    def __getattr__(self, name: str) -> Any: ...

class SelectForward(
    Selector,
    PartialFit,
    InverseTransform,
    Estimator,
):
    k: int | Literal["all", "cv"] | None
    learner: Literal["auto", "linear", "ridge", "discriminant"]
    direction: Literal["forward", "backward", "floating"]
    alpha: float
    n_folds: int
    scoring: Literal["r2", "neg_mean_squared_error"] | None
    task: Any
    random_state: int
    precision: Literal["mixed", "double"]
    max_classes: int
    def __init__(
        self,
        k: int | Literal["all", "cv"] | None = ...,
        *,
        learner: Literal["auto", "linear", "ridge", "discriminant"] = ...,
        direction: Literal["forward", "backward", "floating"] = ...,
        alpha: float = ...,
        n_folds: int = ...,
        scoring: Literal["r2", "neg_mean_squared_error"] | None = ...,
        task: Any = ...,
        random_state: int = ...,
        precision: Literal["mixed", "double"] = ...,
        max_classes: int = ...,
    ) -> None: ...
    support_: Array
    selected_: Array
    scores_: Array
    statistic_: str
    task_: str
    n_samples_: float
    p_values_: Array | None
    classes_: Array | list[str] | None
    learner_: str | None
    scoring_: str | None
    path_features_: Array | None
    path_added_: Array | None
    path_sizes_: Array | None
    path_fold_scores_: Array | None
    cuts_: Array | None
    n_cuts_: Array | None
    discrete_: Array | None
    target_cuts_: Array | None
    path_scores_: Array | None
    pvalues_: Array | None
    def __getattr__(self, name: str) -> Any: ...

class ClassicalMDS(
    Estimator,
):
    n_components: int
    metric: Any
    solver: Literal["auto", "covariance", "exact", "krylov"]
    n_oversamples: int
    max_passes: int
    tol: float
    random_state: int
    def __init__(
        self,
        n_components: int = ...,
        *,
        metric: Any = ...,
        solver: Literal["auto", "covariance", "exact", "krylov"] = ...,
        n_oversamples: int = ...,
        max_passes: int = ...,
        tol: float = ...,
        random_state: int = ...,
    ) -> None: ...
    eigenvalues_: Array
    metric_: Any
    solver_: str
    stress_: float
    shepard_dissimilarities_: Array
    shepard_distances_: Array
    origin_: Array | None
    axes_: Array | None
    projection_: Array | None
    mean_squares_: Array | None
    landmarks_: Array | None
    landmark_rows_: Array | None
    embedding_: Array | None
    negative_eigenvalues_: Array | None
    goodness_of_fit_: float | None
    explained_squares_: float | None
    residuals_: Array | None
    def __getattr__(self, name: str) -> Any: ...

class LandmarkMDS(
    Unweighted,
    Estimator,
):
    n_components: int
    metric: Any
    n_landmarks: int
    landmarks: Literal["maxmin", "random"]
    random_state: int
    def __init__(
        self,
        n_components: int = ...,
        *,
        metric: Any = ...,
        n_landmarks: int = ...,
        landmarks: Literal["maxmin", "random"] = ...,
        random_state: int = ...,
    ) -> None: ...
    eigenvalues_: Array
    metric_: Any
    solver_: str
    stress_: float
    shepard_dissimilarities_: Array
    shepard_distances_: Array
    origin_: Array | None
    axes_: Array | None
    projection_: Array | None
    mean_squares_: Array | None
    landmarks_: Array | None
    landmark_rows_: Array | None
    embedding_: Array | None
    negative_eigenvalues_: Array | None
    goodness_of_fit_: float | None
    explained_squares_: float | None
    residuals_: Array | None
    def __getattr__(self, name: str) -> Any: ...

class MetricMDS(
    Unweighted,
    Estimator,
):
    n_components: int
    metric: Any
    stress: Any
    algorithm: Literal["auto", "smacof", "gradient", "stochastic"]
    storage: Literal["auto", "memory", "stream"]
    n_init: int
    max_iter: int
    tol: float
    n_epochs: int
    pair_weights: Any
    random_state: int
    def __init__(
        self,
        n_components: int = ...,
        *,
        metric: Any = ...,
        stress: Any = ...,
        algorithm: Literal["auto", "smacof", "gradient", "stochastic"] = ...,
        storage: Literal["auto", "memory", "stream"] = ...,
        n_init: int = ...,
        max_iter: int = ...,
        tol: float = ...,
        n_epochs: int = ...,
        pair_weights: Any = ...,
        random_state: int = ...,
    ) -> None: ...
    embedding_: Array
    stress_: float
    measure_: str
    stress_history_: Array
    start_stresses_: Array
    converged_: bool
    algorithm_: str
    metric_: Any
    shepard_dissimilarities_: Array
    shepard_distances_: Array
    points_: Array | None
    shepard_disparities_: Array | None
    disparity_edges_: Array | None
    disparity_values_: Array | None
    n_iter_: int
    def __getattr__(self, name: str) -> Any: ...

class NonmetricMDS(
    Unweighted,
    Estimator,
):
    n_components: int
    metric: Any
    ties: Literal["secondary", "primary"]
    storage: Literal["auto", "memory", "stream"]
    n_bins: int
    n_init: int
    max_iter: int
    tol: float
    random_state: int
    def __init__(
        self,
        n_components: int = ...,
        *,
        metric: Any = ...,
        ties: Literal["secondary", "primary"] = ...,
        storage: Literal["auto", "memory", "stream"] = ...,
        n_bins: int = ...,
        n_init: int = ...,
        max_iter: int = ...,
        tol: float = ...,
        random_state: int = ...,
    ) -> None: ...
    embedding_: Array
    stress_: float
    measure_: str
    stress_history_: Array
    start_stresses_: Array
    converged_: bool
    algorithm_: str
    metric_: Any
    shepard_dissimilarities_: Array
    shepard_distances_: Array
    points_: Array | None
    shepard_disparities_: Array | None
    disparity_edges_: Array | None
    disparity_values_: Array | None
    n_iter_: int
    def __getattr__(self, name: str) -> Any: ...

class SOM(
    Predict,
    Estimator,
):
    height: int
    width: int
    topology: Literal["rectangular", "hexagonal"]
    toroidal: bool
    neighborhood: Literal["gaussian", "bubble"]
    n_epochs: int
    sigma: float | None
    sigma_end: float
    decay: Literal["exponential", "linear"]
    init: Literal["pca", "random"]
    append_tol: float
    precision: Literal["mixed", "double"]
    random_state: int
    def __init__(
        self,
        height: int = ...,
        width: int = ...,
        *,
        topology: Literal["rectangular", "hexagonal"] = ...,
        toroidal: bool = ...,
        neighborhood: Literal["gaussian", "bubble"] = ...,
        n_epochs: int = ...,
        sigma: float | None = ...,
        sigma_end: float = ...,
        decay: Literal["exponential", "linear"] = ...,
        init: Literal["pca", "random"] = ...,
        append_tol: float = ...,
        precision: Literal["mixed", "double"] = ...,
        random_state: int = ...,
    ) -> None: ...
    codebook_: Array
    coordinates_: Array
    hits_: Array
    origin_: Array
    quantization_error_: float
    topographic_error_: float
    quantization_errors_: Array
    radii_: Array
    height_: int
    width_: int
    topology_: str
    toroidal_: bool
    neighborhood_: str
    double_: bool
    grid_: Any
    n_epochs_: int
    n_units_: int
    def __getattr__(self, name: str) -> Any: ...

class NormalizeTotal(
    Estimator,
):
    target_sum: float | None
    empty_rows: Literal["refuse", "keep"]
    def __init__(
        self,
        target_sum: float | None = ...,
        *,
        empty_rows: Literal["refuse", "keep"] = ...,
    ) -> None: ...
    target_sum_: float
    empty_rows_: str
    def __getattr__(self, name: str) -> Any: ...

class Log1p(
    InverseTransform,
    Estimator,
):
    def __init__(
        self,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class Clip(
    Estimator,
):
    min: float | None
    max: float | None
    def __init__(
        self,
        min: float | None = ...,
        max: float | None = ...,
    ) -> None: ...
    min_: float | None
    max_: float | None
    def __getattr__(self, name: str) -> Any: ...

class UnitNorm(
    Estimator,
):
    norm: Any
    def __init__(
        self,
        norm: Any = ...,
    ) -> None: ...
    norm_: str
    def __getattr__(self, name: str) -> Any: ...

class SelectColumns(
    Selector,
    Estimator,
):
    columns: Any
    exclude: Any
    def __init__(
        self,
        columns: Any = ...,
        exclude: Any = ...,
    ) -> None: ...
    support_: Array
    def __getattr__(self, name: str) -> Any: ...

class Standardise(
    PartialFit,
    InverseTransform,
    Estimator,
):
    with_mean: bool
    with_std: bool
    max_value: float | None
    ddof: int
    def __init__(
        self,
        with_mean: bool = ...,
        with_std: bool = ...,
        *,
        max_value: float | None = ...,
        ddof: int = ...,
    ) -> None: ...
    mean_: Array | None
    scale_: Array | None
    max_value_: float | None
    def __getattr__(self, name: str) -> Any: ...

class ScaleGenotypes(
    Selector,
    PartialFit,
    InverseTransform,
    Estimator,
):
    min_maf: float
    ploidy: int
    scaling: Any
    def __init__(
        self,
        min_maf: float = ...,
        *,
        ploidy: int = ...,
        scaling: Any = ...,
    ) -> None: ...
    support_: Array
    mean_: Array
    scale_: Array
    ploidy_: int
    n_monomorphic_: int
    frequencies_: Array
    def __getattr__(self, name: str) -> Any: ...

class SelectVariance(
    Selector,
    PartialFit,
    Estimator,
):
    n_features: int | None
    flavor: Any
    min_variance: float
    min_mean: float
    max_mean: float
    min_disp: float
    max_disp: float | None
    n_bins: int
    def __init__(
        self,
        n_features: int | None = ...,
        *,
        flavor: Any = ...,
        min_variance: float = ...,
        min_mean: float = ...,
        max_mean: float = ...,
        min_disp: float = ...,
        max_disp: float | None = ...,
        n_bins: int = ...,
    ) -> None: ...
    support_: Array
    flavor_: str
    means_: Array
    variances_: Array
    dispersions_: Array | None
    dispersions_norm_: Array | None
    scores_: Array
    def __getattr__(self, name: str) -> Any: ...

class Bin(
    Estimator,
):
    n_bins: int
    strategy: Any
    random_state: int
    def __init__(
        self,
        n_bins: int = ...,
        *,
        strategy: Any = ...,
        random_state: int = ...,
    ) -> None: ...
    edges_: Array
    n_bins_per_column_: Array
    def __getattr__(self, name: str) -> Any: ...
