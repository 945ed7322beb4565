"""The former path of `skep.contracts.drivers`."""

from skep.contracts.drivers import *  # noqa: F403
from skep.testing import moved

moved(__name__, "skep.contracts.drivers")
