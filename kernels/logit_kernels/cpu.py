"""The fast path on a CPU: one visit to each row while it lies in the core's cache, all cores, no sort of the vocabulary.

Compiled by numba on first use and kept in its cache; what is done with a row stands in cpu_row.py.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from logit_kernels.cpu_row import score_block
from logit_kernels.interface import Adjustment, FilterCodes, RowScores

PART_ROWS = 32  # rows a thread takes at a time
# columns of the float and integer outputs, in this order
FLOATS = ("raw_logit", "raw_logprob", "processed_logit", "processed_logprob", "raw_entropy", "processed_entropy", "kept_mass")
INTEGERS = ("raw_rank", "processed_rank", "kept_tokens", "cut_by", "bad")


def score_rows(logits: Tensor, own_ids: Tensor, requested_ids: Tensor, top_n: int, adjustment: Adjustment) -> RowScores:
    """logits: [rows, V] float32, bfloat16 or float16 on the CPU; own_ids: [rows], requested_ids: [R] int64 -> RowScores.

    bfloat16 is widened a row at a time. Memory beside the logits: two rows a thread and the outputs.
    """
    rows, vocab = logits.shape
    if logits.dtype == torch.float16:
        logits = logits.float()
    is_bfloat16 = logits.dtype == torch.bfloat16
    block = logits.contiguous()
    bits = block.view(torch.int16).numpy() if is_bfloat16 else np.empty((1, 1), np.int16)
    values = np.empty((1, 1), np.float32) if is_bfloat16 else block.numpy()
    n = min(top_n, vocab)
    width = 2 * n + requested_ids.shape[0] + 1
    floats = np.empty((rows, len(FLOATS)), np.float32)
    integers = np.empty((rows, len(INTEGERS)), np.int64)
    candidate_ids = np.full((rows, width), -1, np.int64)
    candidate_floats = np.full((4, rows, width), np.nan, np.float32)
    candidate_integers = np.full((3, rows, width), -1, np.int64)
    a = adjustment
    codes = a.codes or FilterCodes(0, 0, 0)
    k = 0 if a.top_k >= vocab else a.top_k
    min_p_drop = math.log(a.min_p) if a.min_p > 0 else -math.inf

    def score(first: int, last: int) -> None:
        score_block(
            values, bits, is_bfloat16, vocab, first, last, own_ids.numpy(), requested_ids.numpy(), n,
            a.edit_ids.numpy(), a.edit_values.contiguous().numpy(), a.edit_codes.contiguous().numpy(), a.outside_code,
            np.float32(a.temperature), min_p_drop, k, float(a.top_p), np.array([codes.min_p, codes.top_k, codes.top_p]),
            not a.is_neutral, floats, integers, candidate_ids, candidate_floats, candidate_integers,
        )  # fmt: skip

    _in_threads(score, rows)
    columns = {name: torch.from_numpy(floats[:, i].copy()) for i, name in enumerate(FLOATS)}
    columns |= {name: torch.from_numpy(integers[:, i].copy()) for i, name in enumerate(INTEGERS)}
    columns["candidate_ids"] = torch.from_numpy(candidate_ids)
    for i, name in enumerate(FLOATS[:4]):
        columns["candidate_" + name] = torch.from_numpy(candidate_floats[i])
    for i, name in enumerate(("raw_rank", "processed_rank", "cut_by")):
        columns["candidate_" + name] = torch.from_numpy(candidate_integers[i])
    columns["candidate_cut_by"].clamp_(min=0)
    return RowScores(**columns)


def _in_threads(work: Callable[[int, int], None], rows: int) -> None:
    """Rows in small parts over torch's number of threads: a core may be busy, for torch's own threads spin for a while after
    a matmul. Threads of our own, since numba's pools forbid two users at once."""
    starts = range(0, rows, PART_ROWS)
    with ThreadPoolExecutor(min(torch.get_num_threads(), len(starts))) as pool:
        list(pool.map(work, starts, (min(start + PART_ROWS, rows) for start in starts)))
