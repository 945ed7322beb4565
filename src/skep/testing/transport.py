"""The former path of `skep.contracts.transport`."""

from skep.contracts.transport import *  # noqa: F403
from skep.testing import moved

moved(__name__, "skep.contracts.transport")
