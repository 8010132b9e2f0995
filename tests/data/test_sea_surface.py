"""The small globe: its patterns and variances are what it says, xarray reads it, and days can be added."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
import xarray as xr
from command_line import streamdr, write_config
from narrowing import checked

from streamdr import PCA
from streamdr.data.examples.datasets import Example, ensure
from streamdr.data.examples.sea_surface import DAYS, SeaSurface, deliver
from streamdr.errors import DataError, ParameterError

GLOBE = SeaSurface()


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("globe") / "x.zarr"
    ensure(path, Example("sea_surface"))
    return str(path)


def opened(path) -> xr.Dataset:
    return xr.open_zarr(path, consolidated=False).load()


def test_xarray_finds_times_latitudes_and_units(path):
    found = opened(path)
    assert dict(found.sizes) == {"time": 730, "lat": 24, "lon": 48}
    assert (found.sst.dtype, found.sst.attrs["units"], found.ice.attrs["units"]) == ("float32", "degC", "1")
    assert found.lat.attrs["units"] == "degrees_north"
    assert str(found.time.values[0])[:10] == "2021-01-01"
    assert str(found.time.values[-1])[:10] == "2022-12-31"
    land = np.isnan(found.sst.values)
    assert (land == land[0]).all()
    assert 0.25 < land[0].mean() < 0.4
    np.testing.assert_array_equal(np.isnan(found.ice.values), land)
    np.testing.assert_array_equal(land[0], GLOBE.land)


def test_temperatures_are_those_of_a_sea(path):
    found = opened(path)
    assert found.sst.min() > -6
    assert found.sst.max() < 36
    assert (float(found.ice.min()), float(found.ice.max())) == (0.0, 1.0)
    warmest = found.sst.sel(lat=slice(40, 60)).mean(["lat", "lon"]).groupby("time.month").mean()
    assert warmest.idxmax() in (7, 8, 9)
    assert found.ice.where(found.sst > 5, drop=True).max() == 0


def patterns() -> np.ndarray:
    """The patterns without land, as cells count by their area."""
    weight = np.sqrt(np.cos(np.deg2rad(GLOBE.lat)))[:, None]
    return (GLOBE.patterns * weight)[:, ~GLOBE.land]


def cosines(components: np.ndarray, with_patterns: np.ndarray) -> np.ndarray:
    found = components[:, np.isfinite(components).all(axis=0)]
    return np.abs(found @ (with_patterns / np.linalg.norm(with_patterns, axis=1, keepdims=True)).T)


def test_patterns_are_orthogonal_by_area_and_two_of_them_vary_together():
    gram = patterns() @ patterns().T
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-9 * gram[0, 0])
    series = GLOBE.series(np.arange(DAYS))
    np.testing.assert_allclose(series.mean(axis=0), 0, atol=1e-12)
    correlations = np.eye(4)
    correlations[2, 3] = correlations[3, 2] = GLOBE.correlation
    np.testing.assert_allclose(series.T @ series / DAYS, correlations, atol=1e-12)
    signal = series @ patterns()
    sizes = np.linalg.svd(signal, compute_uv=False)[:4]
    np.testing.assert_allclose(GLOBE.variances, sizes**2 / DAYS, rtol=1e-10)


def test_a_fit_finds_the_variances_and_the_patterns_that_were_put_in(path):
    how: dict[str, Any] = {"variable": "sst", "sample_dims": "time", "feature_weights": "coslat"}
    pca = PCA(n_components=4).fit(path, **how)
    # Noise adds to the variances, and turns the components: little where a variance is far from the noise.
    np.testing.assert_allclose(pca.explained_variance_, GLOBE.variances * DAYS / (DAYS - 1), rtol=0.02)
    found = cosines(pca.components_, patterns())
    assert (np.diag(found)[:2] > 0.99).all()
    assert (found[2:, 2:] < 0.95).all(), "the last two are mixed, because they vary together"
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1, atol=0.02)


def test_a_rotation_of_anomalies_separates_what_varies_together(path):
    sst = opened(path).sst
    anomalies = sst.groupby("time.month") - sst.groupby("time.month").mean()
    how: dict[str, Any] = {"sample_dims": "time", "feature_weights": "coslat"}
    principal = PCA(n_components=3).fit(anomalies, **how)
    assert (cosines(principal.components_, patterns()[2:]) < 0.9).all()
    rotated = PCA(n_components=3, rotation="promax").fit(anomalies, **how)
    found = cosines(rotated.components_, patterns()[1:])
    # Far from the regions there is noise only, of which every cell counts like one in a region.
    assert (found.max(axis=0) > 0.95).all()
    assert sorted(found.argmax(axis=0)) == [0, 1, 2]


def test_days_depend_on_their_number_and_on_the_seed_only():
    some = GLOBE.temperatures(0, 20)
    np.testing.assert_array_equal(GLOBE.temperatures(7, 5), some[7:12])
    assert not np.array_equal(SeaSurface(seed=1).temperatures(0, 20), some)


def test_the_number_of_days_may_be_given(tmp_path):
    ensure(tmp_path / "x.zarr", Example("sea_surface", days=10, seed=3))
    found = opened(tmp_path / "x.zarr")
    np.testing.assert_array_equal(found.sst.values, SeaSurface(3).temperatures(0, 10))
    ensure(tmp_path / "x.zarr", Example("sea_surface", days=10, seed=3))
    with pytest.raises(DataError, match="is not this example"):
        ensure(tmp_path / "x.zarr", Example("sea_surface", days=11, seed=3))


def test_days_that_are_delivered_follow_each_other(tmp_path):
    folder = tmp_path / "days"
    first = deliver(folder, initial=30)
    later = [deliver(folder) for _ in range(3)]
    dates = [date(2021, 1, 1) + timedelta(days=number) for number in (0, 30, 31, 32)]
    assert [each.name for each in (first, *later)] == [f"{day}.zarr" for day in dates]
    assert sorted(each.name for each in folder.iterdir()) == sorted(f"{day}.zarr" for day in dates)
    joined = xr.concat([opened(each) for each in (first, *later)], "time")
    np.testing.assert_array_equal(joined.sst.values, GLOBE.temperatures(0, 33))
    assert (np.diff(joined.time.values) == np.timedelta64(1, "D")).all()


@pytest.mark.parametrize(
    ("options", "name", "said"),
    [
        ({"dataset": "digits", "days": 5}, "days", "digits has no days; only sea_surface has"),
        ({"dataset": "sea_surface", "missing": 0.1}, "missing", "is not possible for sea_surface"),
        ({"dataset": "sea_surface", "noise": 0.1}, "noise", "is not possible for sea_surface"),
        ({"dataset": "sea_surface", "distances": "cosine"}, "distances", "is not possible for sea_surface"),
    ],
)
def test_parameters_that_do_not_apply_are_refused(options, name, said):
    with pytest.raises(ParameterError, match=said) as caught:
        Example(**options)
    assert checked(ParameterError, caught.value).parameter == name


def test_a_configuration_with_such_parameters_names_the_line(tmp_path):
    example = {"dataset": "digits", "days": 5}
    write_config(tmp_path, input={"path": "x.zarr", "example": example})
    done = streamdr("plan", "config.yaml", cwd=tmp_path)
    assert (done.code, done.errors) == (
        2,
        ["config.yaml:3:42: input.example.days: digits has no days; only sea_surface has"],
    )
    assert not (tmp_path / "x.zarr").exists()
