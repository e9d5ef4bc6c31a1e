"""What passes in and out of the kernels that score whole rows."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FilterCodes:
    """What `cut_by` says of a token that a filter cut."""

    min_p: int
    top_k: int
    top_p: int


@dataclass(frozen=True)
class Adjustment:
    """What a sampler does to rows of logits, in numbers only, in this order: edits, division by the temperature, min-p,
    top-k (ties with the k-th stay), top-p (mass before a token below p, ties by lower id).

    edit_ids: [E] int64, ascending and distinct. edit_values: [rows, E] float32, the logits that take the place of the
    row's own; −inf cuts. edit_codes: [rows, E] int8, `cut_by` of an edit that cuts, else 0. outside_code: not 0 where
    every token that is not edited is cut, with this code. temperature 1, min_p 0, top_k 0, top_p 1 do nothing.
    """

    edit_ids: Tensor
    edit_values: Tensor
    edit_codes: Tensor
    outside_code: int = 0
    temperature: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    codes: FilterCodes | None = None

    @property
    def is_neutral(self) -> bool:
        """Whether processed values are the raw ones."""
        does_nothing = self.temperature == 1.0 and self.min_p == 0.0 and self.top_k == 0 and self.top_p == 1.0
        return does_nothing and self.edit_ids.shape[0] == 0 and not self.outside_code

    @staticmethod
    def neutral(rows: int) -> "Adjustment":
        empty = torch.empty(rows, 0)
        return Adjustment(torch.empty(0, dtype=torch.long), empty, empty.to(torch.int8))


@dataclass(frozen=True)
class RowScores:
    """Both readings of each row's own token and candidates.

    Own token, [rows]: raw_logit, raw_logprob, processed_logit, processed_logprob float32 (−inf where cut); raw_rank,
    processed_rank int64 (1 + strictly greater, −1 where cut); raw_entropy, processed_entropy (nats); kept_tokens;
    kept_mass, the raw probability of the survivors; cut_by, 0 or a code. bad: not 0 where the row holds NaN or +inf,
    and then nothing else of the row is set; kept_tokens 0 says that nothing survives.
    Candidates, [rows, K]: ids, each once, −1 for none, and the same columns.
    """

    raw_logit: Tensor
    raw_logprob: Tensor
    processed_logit: Tensor
    processed_logprob: Tensor
    raw_entropy: Tensor
    processed_entropy: Tensor
    kept_mass: Tensor
    raw_rank: Tensor
    processed_rank: Tensor
    kept_tokens: Tensor
    cut_by: Tensor
    bad: Tensor
    candidate_ids: Tensor
    candidate_raw_logit: Tensor
    candidate_raw_logprob: Tensor
    candidate_processed_logit: Tensor
    candidate_processed_logprob: Tensor
    candidate_raw_rank: Tensor
    candidate_processed_rank: Tensor
    candidate_cut_by: Tensor


@dataclass(frozen=True)
class LinearHead:
    """How hidden states [rows, H] become logits [rows, V]: `hidden @ weight.T`, times `scale`, then soft-capped (0: not).

    weight: [V, H]. Each step is rounded to the weight's dtype, as a model that stores its logits does.
    """

    weight: Tensor
    scale: float = 1.0
    softcap: float = 0.0
