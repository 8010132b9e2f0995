"""Data sets that ship with scikit-learn, with noise: errors of denoising, compared with linear PCA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from command_line import streamdr, succeed, write_config
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from streamdr.data.examples.datasets import Example, denoising_errors, ensure, filling_errors
from streamdr.errors import ParameterError

DIGITS = load_digits().data


def stored(path, **options):
    ensure(path, Example("digits", **options))
    return {name: np.asarray(zarr.open_array(path / name, mode="r")[:]) for name in ("X", "complete", "y")}


def root_mean_square(values):
    return np.sqrt(np.mean(values**2))


def test_noise_depends_on_the_seed_only(tmp_path):
    store = stored(tmp_path / "x.zarr", noise=4.0)
    np.testing.assert_array_equal(store["complete"], DIGITS)
    np.testing.assert_array_equal(store["y"][:, 0], load_digits().target)
    noise = store["X"] - DIGITS
    assert noise.std() == pytest.approx(4.0, rel=0.01)
    assert abs(noise.mean()) < 0.05
    np.testing.assert_array_equal(stored(tmp_path / "again.zarr", noise=4.0)["X"], store["X"])
    assert not np.array_equal(stored(tmp_path / "other.zarr", noise=4.0, seed=1)["X"], store["X"])
    np.testing.assert_array_equal(stored(tmp_path / "plain.zarr")["X"], DIGITS)


def test_missing_values_and_noise_can_be_combined(tmp_path):
    options: dict[str, Any] = {"missing": 0.3, "seed": 2}
    plain, noisy = stored(tmp_path / "a.zarr", **options), stored(tmp_path / "b.zarr", noise=1.0, **options)
    missing = np.isnan(noisy["X"])
    np.testing.assert_array_equal(missing, np.isnan(plain["X"]))
    errors = filling_errors(Example("digits", noise=1.0, **options), np.where(missing, DIGITS, noisy["X"]))
    assert errors.rms_error["streamdr"] == 0.0
    assert errors.holes == missing.sum()


def test_errors_of_denoising_are_compared_with_linear_pca(tmp_path):
    noisy = stored(tmp_path / "x.zarr", noise=4.0)["X"]
    found = denoising_errors(Example("digits", noise=4.0), DIGITS + 1.0, 20)
    linear = [
        root_mean_square(pca.inverse_transform(pca.transform(noisy)) - DIGITS)
        for pca in (PCA(k, svd_solver="full").fit(noisy) for k in range(1, 65))
    ]
    best = int(np.argmin(linear)) + 1
    expected = {
        "streamdr": 1.0,
        "linear PCA, 20 components": linear[19],
        f"linear PCA, {best} components, its best": linear[best - 1],
        "as it was given": root_mean_square(noisy - DIGITS),
    }
    assert found.rms_error == pytest.approx(expected)
    assert (found.dataset, found.noise) == ("digits", 4.0)
    many = denoising_errors(Example("digits", noise=4.0), noisy, 500).rms_error
    assert many["linear PCA, 64 components"] == pytest.approx(many["as it was given"])


def test_a_run_that_denoises_reports_its_error(tmp_path):
    example = {"dataset": "digits", "noise": 4.0}
    write_config(
        tmp_path,
        input={"path": "data/digits.zarr", "array": "X", "example": example},
        method={"name": "pca", "n_components": 12, "whiten": "pca"},
        output={"denoised": "out/digits.zarr"},
    )
    text = succeed("run", "config.yaml", cwd=tmp_path).out
    assert "root mean square error of digits, with noise of standard deviation 4\n" in text
    again = succeed("run", "config.yaml", "--fresh", "--set", "output.overwrite=true", "--json", cwd=tmp_path)
    errors = again.report["transform"]["outputs"]["denoised"]["denoising"]["rms_error"]
    denoised = np.asarray(zarr.open_array(tmp_path / "out/digits.zarr/denoised", mode="r")[:])
    assert errors["streamdr"] == pytest.approx(root_mean_square(denoised - DIGITS))
    assert errors["streamdr"] == pytest.approx(errors["linear PCA, 12 components"]), "it is linear PCA"
    assert errors["streamdr"] < 0.7 * errors["as it was given"]


@pytest.mark.parametrize("noise", [-1.0, np.inf, np.nan])
def test_noise_that_is_not_a_standard_deviation_is_refused(tmp_path, noise):
    with pytest.raises(ParameterError, match="is not a standard deviation"):
        Example("digits", noise=noise)
    write_config(tmp_path, input={"path": "x.zarr", "example": {"dataset": "digits", "noise": -1}})
    outcome = streamdr("plan", "config.yaml", cwd=tmp_path)
    assert outcome.code == 2
    assert "input.example.noise" in outcome.errors[0]
