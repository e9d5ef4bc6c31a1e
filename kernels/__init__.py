"""Statistics of rows of logits: the interface, and the choice of the path that computes them.

Knows nothing of models, texts or sampling parameters; tensors in, tensors out, on the device where they are.
"""

from torch import Tensor

from kernels import reference
from kernels.reference import RowStatistics

__all__ = ["PATHS", "RowStatistics", "choose_path", "count_greater", "row_statistics"]

PATHS = ("auto", "torch")


def choose_path(path: str) -> str:
    """The path that `path` stands for on this machine. Raises ValueError, listing the paths, for any other word."""
    if path not in PATHS:
        raise ValueError(f"kernels must be one of {', '.join(PATHS)}, got {path!r}")
    return "torch"


def row_statistics(logits: Tensor, own_ids: Tensor, top_n: int, path: str = "auto") -> RowStatistics:
    """See `reference.row_statistics`; every path gives the same results."""
    choose_path(path)
    return reference.row_statistics(logits, own_ids, top_n)


def count_greater(logits: Tensor, rows: Tensor, values: Tensor, path: str = "auto") -> Tensor:
    """See `reference.count_greater`; every path gives the same results."""
    choose_path(path)
    return reference.count_greater(logits, rows, values)
