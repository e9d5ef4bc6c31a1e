"""Sampling parameters: names, ranges and messages. Neutral by default, whatever a model's own defaults are."""

import math
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from inspector.errors import InputError, ParameterError

# name -> (lowest, highest, whether the lowest itself is allowed)
RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, math.inf, True),
    "top_p": (0.0, 1.0, False),
    "min_p": (0.0, 1.0, True),
    "repetition_penalty": (0.0, math.inf, False),
    "presence_penalty": (-2.0, 2.0, True),
    "frequency_penalty": (-2.0, 2.0, True),
}
GREEDY_BELOW = 1e-5  # the engine's threshold: a lower temperature means greedy decoding
MAX_SEED = 2**63 - 1
LARGEST = 1e30  # of a temperature, a penalty or a bias, so that what it makes of a logit stays a float32


def range_text(name: str) -> str:
    """The allowed range of a float parameter, in interval notation."""
    low, high, closed = RANGES[name]
    right = "inf)" if math.isinf(high) else f"{high:g}]"
    return f"{'[' if closed else '('}{low:g}, {right}"


class SamplingParams(BaseModel):
    """How the next token is chosen; the same names and meanings as the engine's.

    Every default is neutral: with `SamplingParams()` processed values equal raw ones. Raises ParameterError, one line
    that names the field and its range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    temperature: float = 1.0
    """Divides the logits; below 1e-5 decoding is greedy and truncation is skipped."""
    top_k: int = 0
    """Keep the k largest logits and what ties with the k-th; 0 or -1 is off."""
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ParameterError(_one_line(error)) from None

    @field_validator(*RANGES, "top_k", "min_tokens", "ignore_eos", mode="before")
    @classmethod
    def _no_bool_for_number(cls, value: Any, info: Any) -> Any:
        if isinstance(value, bool) != (info.field_name == "ignore_eos"):
            raise ValueError(f"must be {'true or false' if info.field_name == 'ignore_eos' else 'a number'}, got {value!r}")
        return value

    @field_validator(*RANGES)
    @classmethod
    def _in_range(cls, value: float, info: Any) -> float:
        low, high, closed = RANGES[info.field_name]
        inside = (low <= value if closed else low < value) and value <= high and math.isfinite(value)
        if not inside:
            raise ValueError(f"must be in {range_text(info.field_name)}, got {value:g}")
        if value > LARGEST:
            raise ValueError(f"must be at most {LARGEST:g}, got {value:g}")
        return value

    @field_validator("top_k")
    @classmethod
    def _top_k(cls, value: int) -> int:
        if value < -1:
            raise ValueError(f"must be 0 or -1 (off) or at least 1, got {value}")
        return max(value, 0)

    @field_validator("min_tokens")
    @classmethod
    def _min_tokens(cls, value: int) -> int:
        if value < 0:
            raise ValueError(f"must be at least 0, got {value}")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _finite_bias(cls, value: dict[int, float]) -> dict[int, float]:
        for token_id, bias in value.items():
            if not math.isfinite(bias):
                raise ValueError(f"of token id {token_id} must be a finite number, got {bias} (use allowed_token_ids or bad_words to cut)")
            if abs(bias) > LARGEST:
                raise ValueError(f"of token id {token_id} must be within ±{LARGEST:g}, got {bias:g}")
        return value

    @field_validator("allowed_token_ids")
    @classmethod
    def _some_allowed(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not value:
            raise ValueError("must name at least one token id, got an empty list (leave it out to allow all)")
        return value

    @field_validator("bad_words", "stop")
    @classmethod
    def _no_empty_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not word for word in value):
            raise ValueError("must not contain an empty string")
        for word in value:
            if any("\ud800" <= c <= "\udfff" for c in word):
                raise ValueError(f"must not contain a lone surrogate, got {word!r}")
        return value

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


def check_seed(seed: int | str | None) -> int | None:
    """A seed as an int in [0, 2**63 - 1]. Text is accepted so that no digit is lost on the way. Raises InputError."""
    if seed is None or seed == "":
        return None
    text = str(seed).strip()
    if isinstance(seed, (bool, float)) or not re.fullmatch("-?[0-9]{1,40}", text):
        raise InputError(f"seed must be a whole number in [0, {MAX_SEED}], got {seed!r}")
    value = int(text)
    if not 0 <= value <= MAX_SEED:
        raise InputError(f"seed must be in [0, {MAX_SEED}], got {value}")
    return value


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    name = where[0] if where else "params"
    if first["type"] == "extra_forbidden":
        return f"unknown sampling parameter {name!r}; known are {', '.join(SamplingParams.model_fields)}"
    if first["type"] == "value_error":
        return f"{name} {first['ctx']['error']}"
    message = first["msg"][0].lower() + first["msg"][1:]
    inside = f" (at {'.'.join(where[1:])})" if len(where) > 1 else ""
    return f"{name}: {message}, got {first['input']!r}{inside}"
