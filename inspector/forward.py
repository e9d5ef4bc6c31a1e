"""Ids to hidden states to chunks of logits.

The base model runs once; the head then runs on a bounded number of rows at a time, so the whole `[T, V]` block of
logits never exists.
"""

import copy
import ctypes
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

from inspector.errors import InputError, ModelError
from inspector.events import Progress, Running
from logit_kernels import LinearHead

BLOCK_TOKENS = 2048  # tokens a forward call: the step of progress and of cancelling
CHUNK_BYTES = 64 << 20  # float32 logits held at a time: larger is a little faster, since matmul and statistics take turns less often


class _HiddenOnly(BaseModelOutputWithPast):
    """A base model's output that holds hidden states and nothing else an architecture may ask for."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Passthrough(torch.nn.Module):
    """Stands in for the base model and hands the given hidden states on."""

    def forward(self, *args: Any, inputs_embeds: Tensor | None = None, **kwargs: Any) -> _HiddenOnly:
        return _HiddenOnly(last_hidden_state=inputs_embeds)

    @property
    def decoder(self) -> "_Passthrough":
        """OPT and its like call their base model's decoder directly."""
        return self


class Head:
    """A model's way from hidden states to logits: its own code (soft-capping, scaling, bias, tied weights), alone.

    The model's own `forward` is called with the base model replaced, so that no architecture's quirk has to be known
    here. What it gives is compared with the whole model once, on loading. Raises ModelError if they differ.
    linear: the same as one matrix, for kernels that never store the logits; None where it is more than that.
    """

    def __init__(self, model: Any) -> None:
        head = copy.copy(model)
        head._modules = dict(model._modules)
        head._modules[model.base_model_prefix] = _Passthrough()
        self._forward = head
        self.width, self.linear = self._check(model)

    @torch.inference_mode()
    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, H] -> logits [rows, V] in the model's dtype, before any sampling processor."""
        logits = self._forward(inputs_embeds=hidden[None], use_cache=False).logits[0]
        if logits.shape[0] != hidden.shape[0]:
            raise ModelError(f"the model gave {logits.shape[0]} rows of logits for {hidden.shape[0]} hidden states")
        return logits

    @torch.inference_mode()
    def _check(self, model: Any) -> tuple[int, LinearHead | None]:
        """The width of the logits, and the head as one matrix, if it is that."""
        ids = torch.tensor([[0, 1, 0]], device=next(model.parameters()).device)
        whole = model(input_ids=ids, use_cache=False).logits[0].float()
        unsupported = f"{type(model).__name__} makes its logits in a way that cannot be split from the model; it is not supported"
        try:
            hidden = base_of(model)(input_ids=ids, use_cache=False).last_hidden_state[0]
            alone = self(hidden).float()
        except (AttributeError, TypeError) as error:  # its forward wants more of the base model than hidden states
            raise ModelError(f"{unsupported} ({error})") from error
        if whole.shape != alone.shape or not torch.allclose(whole, alone, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise ModelError(unsupported)
        return whole.shape[-1], _linear_head(model, hidden, alone)


def _linear_head(model: Any, hidden: Tensor, logits: Tensor) -> LinearHead | None:
    """A head that is a matrix, a scale and a soft-cap, as its config says and its own logits [rows, V] confirm; else None."""
    layer, config = model.get_output_embeddings(), model.config.get_text_config()
    if not isinstance(layer, torch.nn.Linear) or layer.bias is not None or layer.weight.dtype != hidden.dtype:
        return None
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None) or 0.0
    x = (hidden @ layer.weight.T) * scale
    if softcap:
        x = (x / softcap).tanh() * softcap
    tolerance = 4 * torch.finfo(hidden.dtype).eps
    if x.shape != logits.shape or not torch.allclose(x.float(), logits, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return LinearHead(layer.weight, scale, softcap)


class _ReservedLayer(DynamicLayer):
    """A layer's keys and values with room for all tokens to come: growing block by block would copy them each time, and
    leave holes in memory."""

    def __init__(self, new_tokens: int, earlier: DynamicLayer) -> None:
        super().__init__()
        self._new_tokens = new_tokens
        self._earlier = earlier
        self._length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        held = self._earlier.get_seq_length()
        self._room = [s.new_empty(*s.shape[:2], held + self._new_tokens, s.shape[3]) for s in (key_states, value_states)]
        if held:
            self._write(self._earlier.keys, self._earlier.values)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._write(key_states, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self._length if self.is_initialized else self._earlier.get_seq_length()

    def _write(self, keys: Tensor, values: Tensor) -> None:
        end = self._length + keys.shape[2]
        for room, states in zip(self._room, (keys, values)):
            room[:, :, self._length : end] = states
        self._length = end
        self.keys, self.values = (room[:, :, :end] for room in self._room)

    def plain(self) -> DynamicLayer:
        """The same keys and values in a layer that may be shared and grows by copying."""
        layer = DynamicLayer()
        layer.lazy_initialization(self.keys, self.values)
        layer.keys, layer.values = self.keys, self.values
        return layer


@dataclass(frozen=True)
class Prefill:
    """hidden: [T, H], row t predicts token t + 1. cache: the keys and values of all T tokens."""

    hidden: Tensor
    cache: DynamicCache


def _return_freed_memory() -> None:
    """glibc keeps what a long forward pass has freed, a third of a gigabyte at times; other allocators give it back themselves."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def base_of(model: Any) -> Any:
    """The part of a causal language model below its head."""
    return getattr(model, model.base_model_prefix)


@torch.inference_mode()
def prefill(model: Any, ids: Sequence[int], cache: DynamicCache | None = None) -> Running[Prefill]:
    """Run the base model over `ids`, after what `cache` already holds (which is extended in place)."""
    base = base_of(model)
    cache = cache if cache is not None else DynamicCache(config=model.config)
    cache.layers = [_ReservedLayer(len(ids), layer) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    tokens = torch.tensor(ids, dtype=torch.long, device=next(base.parameters()).device)
    parts = []
    # a block behind others has an attention mask of its own, so it is half as long
    for start, end in [(0, min(BLOCK_TOKENS, len(ids))), *chunks(BLOCK_TOKENS, len(ids), max(1, BLOCK_TOKENS // 2))]:
        yield Progress("running the model", start, len(ids))
        output = base(input_ids=tokens[None, start:end], use_cache=True, **_cache_argument(base, cache))
        parts.append(output.last_hidden_state[0])
    cache.layers = [layer.plain() if isinstance(layer, _ReservedLayer) else layer for layer in cache.layers]
    hidden = parts[0] if len(parts) == 1 else torch.cat(parts)
    if len(parts) > 1:
        del parts, output
        _return_freed_memory()
    return Prefill(hidden, cache)


@torch.inference_mode()
def decode_step(model: Any, last_ids: Tensor, cache: DynamicCache) -> Tensor:
    """last_ids: [n], one new token a sequence -> hidden [n, H]; the cache is extended in place."""
    base = base_of(model)
    return base(input_ids=last_ids[:, None], use_cache=True, **_cache_argument(base, cache)).last_hidden_state[:, -1]


def _cache_argument(base: Any, cache: DynamicCache) -> dict[str, DynamicCache]:
    """`cache` since transformers 5.21, `past_key_values` before, which is the newest for Python 3.10."""
    return {"cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values": cache}


def chunk_rows(vocab_size: int, is_fused: bool) -> int:
    """How many rows of logits to hold at a time; the unfused path makes several copies of them."""
    return max(1, CHUNK_BYTES // (4 * vocab_size) // (1 if is_fused else 6))


def chunks(first: int, last: int, rows: int) -> Iterator[tuple[int, int]]:
    """[first, last) in pieces of at most `rows`."""
    for start in range(first, last, rows):
        yield start, min(start + rows, last)


def check_context(length: int, new_tokens: int, context_length: int | None, what: str) -> None:
    """Refuse, before any forward pass, what the model's context cannot hold. Raises InputError with both numbers."""
    if context_length is not None and length + new_tokens > context_length:
        extra = f" and {new_tokens} new tokens" if new_tokens else ""
        raise InputError(f"{what} has {length} tokens{extra}, but the model's context holds {context_length}; shorten it")
