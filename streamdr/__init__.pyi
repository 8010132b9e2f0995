# Written by `make derived`.

from streamdr import errors as errors
from streamdr import plots as plots
from streamdr import testing as testing
from streamdr.core.addresses import storage_options as storage_options
from streamdr.core.execution import execution as execution
from streamdr.data import open_source as open_source
from streamdr.estimators import ClassicalMDS as ClassicalMDS
from streamdr.estimators import Clip as Clip
from streamdr.estimators import KernelPCA as KernelPCA
from streamdr.estimators import LDA as LDA
from streamdr.estimators import LandmarkMDS as LandmarkMDS
from streamdr.estimators import Log1p as Log1p
from streamdr.estimators import MDS as MDS
from streamdr.estimators import MetricMDS as MetricMDS
from streamdr.estimators import NonmetricMDS as NonmetricMDS
from streamdr.estimators import NormalizeTotal as NormalizeTotal
from streamdr.estimators import PCA as PCA
from streamdr.estimators import PPCA as PPCA
from streamdr.estimators import PPCAMixture as PPCAMixture
from streamdr.estimators import SOM as SOM
from streamdr.estimators import SelectCorrelation as SelectCorrelation
from streamdr.estimators import SelectFScore as SelectFScore
from streamdr.estimators import SelectForward as SelectForward
from streamdr.estimators import SelectMutualInfo as SelectMutualInfo
from streamdr.estimators import SparseKernelPCA as SparseKernelPCA
from streamdr.estimators import Standardise as Standardise
from streamdr.estimators import UnitNorm as UnitNorm
from streamdr.estimators import load_model as load_model
from streamdr.statistics.splits import folds as folds

IMPORTED_AT: float
__version__: str
__all__: list[str]
