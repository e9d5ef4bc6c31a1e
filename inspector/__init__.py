"""Logit Inspector: how likely a language model found a text, and what its sampler did to it.

The public names are loaded on first use, so that `import inspector` costs milliseconds and an interrupt is heard at once.
Importing this package is also what makes `logit_kernels` importable: a wheel installs it beside `inspector`; in a checkout
it lies in `kernels/`, which is no package itself, since `import kernels` belongs to a distribution on the index.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.version import VERSION as __version__

_KERNELS = Path(__file__).resolve().parents[1] / "kernels"
if (_KERNELS / "logit_kernels").is_dir() and str(_KERNELS) not in sys.path:
    sys.path.insert(0, str(_KERNELS))  # before site-packages: a checkout uses its own kernels

if TYPE_CHECKING:
    from inspector.errors import Cancelled, EmptyRowError, InputError, InspectorError, ModelError, ParameterError
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

_HOMES = {"Inspector": "inspection", "LogprobsMode": "modes", "SamplingParams": "params", "Report": "report"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"inspector.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
