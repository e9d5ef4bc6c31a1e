"""Logit Inspector: how likely a language model found a text, and what its sampler did to it."""

from inspector.errors import Cancelled, EmptyRowError, InputError, InspectorError, ModelError, ParameterError
from inspector.inspection import VERSION as __version__
from inspector.inspection import Inspector
from inspector.modes import LogprobsMode
from inspector.params import SamplingParams
from inspector.report import Report

__all__ = [
    "Cancelled",
    "EmptyRowError",
    "InputError",
    "Inspector",
    "InspectorError",
    "LogprobsMode",
    "ModelError",
    "ParameterError",
    "Report",
    "SamplingParams",
    "__version__",
]
