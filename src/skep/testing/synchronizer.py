"""The former path of `skep.contracts.synchronizer`."""

from skep.contracts.synchronizer import *  # noqa: F403
from skep.testing import moved

moved(__name__, "skep.contracts.synchronizer")
