"""The former path of `skep.contracts.cloud`."""

from skep.contracts.cloud import *  # noqa: F403
from skep.testing import moved

moved(__name__, "skep.contracts.cloud")
