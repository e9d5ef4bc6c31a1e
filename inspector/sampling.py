"""Continuations: draw, record, stop. All of them run as one batch that shrinks as they end, so nothing is ever padded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inspector.errors import InputError
from inspector.events import Progress, Running, SampledTokens
from inspector.forward import Prefill, decode_step
from inspector.models import LoadedModel
from inspector.processors import ResolvedParams, batch_context, run_pipeline
from inspector.scoring import ScoredRows, Wanted, score_rows


@dataclass(frozen=True)
class Continuation:
    """A sampled text. finish_reason: `length`, `stop` (stop_reason is the string or id that ended it) or `cancelled`.

    The token that ends it, or completes a stop string, is a row like the others.
    """

    seed: int
    ids: tuple[int, ...]
    rows: ScoredRows
    finish_reason: str
    stop_reason: str | int | None


@dataclass
class _Draft:
    """A continuation in the making."""

    number: int
    seed: int
    generator: torch.Generator
    ids: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    rows: list[ScoredRows] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@torch.inference_mode()
def sample(
    loaded: LoadedModel,
    prompt_ids: Sequence[int],
    start: Prefill,
    resolved: ResolvedParams,
    wanted: Wanted,
    *,
    seeds: Sequence[int],
    max_new_tokens: int,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Running[list[Continuation]]:
    """One continuation a seed, from the prompt's own forward pass, whose cache is used up.

    A continuation depends on its seed alone: each draws its noise from a generator of its own.
    """
    drafts = [_Draft(i + 1, seed, torch.Generator().manual_seed(seed)) for i, seed in enumerate(seeds)]
    prompt = torch.tensor(prompt_ids, dtype=torch.long, device=loaded.device)
    live = list(drafts)
    cache = start.cache
    if len(live) > 1:
        if not all(hasattr(layer, "batch_repeat_interleave") for layer in cache.layers):
            raise InputError("continuations must be 1 for this model: its recurrent state cannot be repeated for several")
        cache.batch_repeat_interleave(len(live))
    hidden = start.hidden[-1:].expand(len(live), -1)
    for done in range(max_new_tokens):
        if is_cancelled():
            break
        yield Progress("sampling", done, max_new_tokens)
        names = [f"continuation {d.number}, token {len(prompt_ids) + len(d.ids)}" for d in live]
        raw = loaded.head(hidden).float()
        processed = run_pipeline(raw, batch_context(resolved, prompt, [d.ids for d in live]), names)
        drawn = _draw(processed.logits, live, resolved.params.is_greedy)
        rows = score_rows(raw, processed, drawn, wanted, names)
        for i, draft in enumerate(live):
            _extend(draft, int(drawn[i]), rows[i : i + 1], loaded, resolved)
        yield SampledTokens(
            tuple(d.number for d in live),
            tuple(d.ids[-1] for d in live),
            tuple(rows.raw_logprob.tolist()),
            tuple(rows.processed_logprob.tolist()),
        )
        going = [i for i, draft in enumerate(live) if draft.finish_reason is None]
        if not going or done + 1 == max_new_tokens:
            break
        if len(going) < len(live):
            keep = torch.tensor(going, device=loaded.device)
            cache.batch_select_indices(keep)
            drawn, live = drawn[keep], [live[i] for i in going]
        hidden = decode_step(loaded.model, drawn, cache)
    default = "cancelled" if is_cancelled() else "length"
    return [_finished(draft, default, wanted, loaded.vocab_size) for draft in drafts]


def _draw(logits: Tensor, live: Sequence[_Draft], is_greedy: bool) -> Tensor:
    """logits: [rows, V] -> one id a row, by Gumbel-max in float64 (16 rows · V bytes); greedy takes the best, ties by lower id.

    −log of a standard exponential is Gumbel noise, and argmax(logits + noise) is a draw from their softmax (Maddison et al.,
    2014). Every id has noise of its own, so that the last bits of the logits, which depend on what was cached, all but never
    change what a seed draws. Masses summed over the vocabulary would let them.
    """
    if is_greedy:
        best = logits == logits.amax(dim=1, keepdim=True)
        return best.long().cumsum(dim=1).eq(0).sum(dim=1)
    noise = torch.empty(logits.shape, dtype=torch.float64)
    for row, draft in zip(noise, live):
        row.exponential_(generator=draft.generator)
    noise.clamp_min_(torch.finfo(torch.float64).tiny).log_()  # log 0 would make a cut token's −inf a NaN
    return (logits.double() - noise.to(logits.device)).argmax(dim=1)


def _extend(draft: _Draft, token_id: int, row: ScoredRows, loaded: LoadedModel, resolved: ResolvedParams) -> None:
    draft.ids.append(token_id)
    draft.pieces.append(loaded.vocabulary.bytes_of(token_id))
    draft.rows.append(row)
    if token_id in resolved.end_ids:
        draft.finish_reason, draft.stop_reason = "stop", token_id
    elif len(draft.ids) > resolved.params.min_tokens:  # which holds stop strings back too, as in the engine
        found = [s for s in resolved.params.stop if _completes(draft.pieces, s.encode())]
        if found:
            draft.finish_reason, draft.stop_reason = "stop", found[0]


def _completes(pieces: Sequence[bytes], stop: bytes) -> bool:
    """Whether the last piece completes `stop`. Bytes are compared, so that what stands for a broken character is no text."""
    data = b"".join(pieces)
    return data.find(stop, max(0, len(data) - len(pieces[-1]) - len(stop) + 1)) >= 0


def _finished(draft: _Draft, default: str, wanted: Wanted, vocab_size: int) -> Continuation:
    rows = ScoredRows.concatenate(draft.rows) if draft.rows else ScoredRows.unscored([], wanted.candidates(vocab_size))
    return Continuation(draft.seed, tuple(draft.ids), rows, draft.finish_reason or default, draft.stop_reason)
