"""Statistics of rows of logits: the interface, and the choice of the path that computes them.

Knows nothing of models, texts or sampling parameters; tensors in, tensors out, on the device where they are.
"""

from functools import cache

import torch
from torch import Tensor

from kernels import reference
from kernels.interface import Adjustment, FilterCodes, RowScores
from kernels.reference import RowStatistics

__all__ = [
    "PATHS",
    "Adjustment",
    "FilterCodes",
    "RowScores",
    "RowStatistics",
    "choose_path",
    "count_greater",
    "row_statistics",
    "score_rows",
]

PATHS = ("auto", "numba", "torch")


def choose_path(path: str, device: torch.device) -> str:
    """The path that `path` stands for on `device`: numba on a CPU, else torch. Raises ValueError for a path that cannot be."""
    if path not in PATHS:
        raise ValueError(f"kernels must be one of {', '.join(PATHS)}, got {path!r}")
    if path == "auto":
        return "numba" if device.type == "cpu" else "torch"
    if path == "numba" and device.type != "cpu":
        raise ValueError(f"kernels numba works on the CPU only, and the model is on {device}")
    return path


def score_rows(logits: Tensor, own_ids: Tensor, requested_ids: Tensor, top_n: int, adjustment: Adjustment, path: str) -> RowScores:
    """Both readings of rows of logits [rows, V], any float dtype, in one visit. See RowScores; path: as chosen."""
    if path != "numba":
        raise ValueError(f"kernels {path} does not score whole rows; run the pipeline and row_statistics")
    return _cpu().score_rows(logits, own_ids, requested_ids, top_n, adjustment)


def row_statistics(logits: Tensor, own_ids: Tensor, top_n: int) -> RowStatistics:
    """See `reference.row_statistics`."""
    return reference.row_statistics(logits, own_ids, top_n)


def count_greater(logits: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """See `reference.count_greater`."""
    return reference.count_greater(logits, rows, values)


@cache
def _cpu():
    from kernels import cpu

    return cpu
