"""The former path of `skep.contracts.eventually`."""

from skep.contracts.eventually import *  # noqa: F403
from skep.testing import moved

moved(__name__, "skep.contracts.eventually")
