"""The four readings of a token's score."""

from enum import Enum

from inspector.errors import InputError


class LogprobsMode(str, Enum):
    """What `score` shows. All four come from one forward pass; the mode never changes what is run."""

    RAW_LOGITS = "raw_logits"
    RAW_LOGPROBS = "raw_logprobs"
    PROCESSED_LOGITS = "processed_logits"
    PROCESSED_LOGPROBS = "processed_logprobs"

    @classmethod
    def parse(cls, word: "str | LogprobsMode") -> "LogprobsMode":
        """The mode that `word` names. Raises InputError, listing the four, for any other word."""
        try:
            return cls(word)
        except ValueError:
            names = ", ".join(mode.value for mode in cls)
            raise InputError(f"mode must be one of {names}, got {word!r}") from None

    @property
    def is_processed(self) -> bool:
        return self in (LogprobsMode.PROCESSED_LOGITS, LogprobsMode.PROCESSED_LOGPROBS)

    @property
    def is_logprob(self) -> bool:
        return self in (LogprobsMode.RAW_LOGPROBS, LogprobsMode.PROCESSED_LOGPROBS)

    @property
    def column(self) -> str:
        """The column of tokens.csv that `score` repeats: the mode's name in the singular."""
        return self.value.removesuffix("s")

    @property
    def unit(self) -> str:
        return "nats" if self.is_logprob else "logit"
