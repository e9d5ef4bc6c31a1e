"""Statistics of rows of logits: the interface, and the choice of the path that computes them.

Knows nothing of models, texts or sampling parameters; tensors in, tensors out, on the device where they are.
"""

import os
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from logit_kernels import reference
from logit_kernels.interface import Adjustment, FilterCodes, LinearHead, RowScores
from logit_kernels.reference import RowStatistics

__all__ = [
    "PATHS",
    "Adjustment",
    "FilterCodes",
    "KernelPath",
    "LinearHead",
    "RowScores",
    "RowStatistics",
    "choose_path",
    "count_greater",
    "row_statistics",
    "score_hidden",
    "score_rows",
]

PATHS = ("auto", "triton", "numba", "torch")


@dataclass(frozen=True)
class KernelPath:
    """The path that rows are scored by. warning: why it is not the one that was asked for, empty if it is."""

    name: str
    warning: str = ""


def choose_path(path: str, device: torch.device) -> KernelPath:
    """The path that `path` stands for on `device`; auto is Triton on CUDA, numba on a CPU, else torch.

    A kernel that does not compile or run on the device gives way to torch, with a warning. Raises ValueError for a path
    that cannot be on this device at all.
    """
    if path not in PATHS:
        raise ValueError(f"kernels must be one of {', '.join(PATHS)}, got {path!r}")
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if path == "triton" and device.type != "cuda" and not interpreted:
        raise ValueError(f"kernels triton works on a CUDA device (or with TRITON_INTERPRET=1), and the model is on {device}")
    if path == "numba" and device.type != "cpu":
        raise ValueError(f"kernels numba works on the CPU only, and the model is on {device}")
    name = {"cuda": "triton", "cpu": "numba"}.get(device.type, "torch") if path == "auto" else path
    if name == "torch":
        return KernelPath("torch")
    try:
        _try_path(name, device)
    except Exception as error:  # a compiler may fail in any way; it is told, not hidden
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return KernelPath("torch", f"the {name} kernels do not run on {device} ({reason}); the slower torch path is used")
    return KernelPath(name)


def score_rows(logits: Tensor, own_ids: Tensor, requested_ids: Tensor, top_n: int, adjustment: Adjustment, path: str) -> RowScores:
    """Both readings of rows of logits [rows, V], any float dtype, in one visit. See RowScores; path: triton or numba."""
    return _module(path).score_rows(logits, own_ids, requested_ids, top_n, adjustment)


def score_hidden(
    hidden: Tensor, head: LinearHead, own_ids: Tensor, top_n: int, temperature: float, bias_ids: Tensor, bias_values: Tensor
) -> RowScores:
    """The same for hidden states [rows, H] by the fused head, which holds no logits; Triton alone. See triton_score."""
    bias = {"bias_ids": bias_ids, "bias_values": bias_values} if len(bias_ids) else {}
    return _module("triton").score_hidden(hidden, head, own_ids, top_n, temperature=temperature, **bias)


def _module(path: str) -> ModuleType:
    """Imported on first use: numba and triton take a while, and only their own path needs them."""
    return import_module({"triton": "logit_kernels.triton_score", "numba": "logit_kernels.cpu"}[path])


def _try_path(path: str, device: torch.device) -> None:
    """Compile (or take from the cache) and run a path's kernels on a small row, every filter on."""
    logits = torch.zeros(1, 300, device=device)
    ids = torch.zeros(1, dtype=torch.long, device=device)
    codes = torch.zeros(1, 1, dtype=torch.int8, device=device)
    a = Adjustment(ids, torch.ones(1, 1, device=device), codes, 0, 0.5, 0.1, 2, 0.9, FilterCodes(1, 2, 3))
    score_rows(logits, ids, ids, 3, a, path)
    if path == "triton":
        for dtype in (torch.float32, torch.bfloat16):
            head = LinearHead(torch.zeros(300, 16, device=device, dtype=dtype))
            score_hidden(head.weight[:1], head, ids, 3, 0.5, ids, torch.ones(1, device=device))


def row_statistics(logits: Tensor, own_ids: Tensor, top_n: int) -> RowStatistics:
    """See `reference.row_statistics`."""
    return reference.row_statistics(logits, own_ids, top_n)


def count_greater(logits: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """See `reference.count_greater`."""
    return reference.count_greater(logits, rows, values)
