"""The former path of `skep.contracts.http_cloud`."""

from skep.contracts.http_cloud import *  # noqa: F403
from skep.testing import moved

moved(__name__, "skep.contracts.http_cloud")
