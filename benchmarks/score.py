"""What scoring costs on top of the model: the embedded model, two threads, all variants alternating in one run.

    python -m benchmarks.score [--tokens 2048] [--rounds 3] [--growth] [--out build/benchmark.json]

(a) the bare `model(ids)`; (b) naive transformers scoring of one mode (whole log-softmax, top 10, rank, entropy);
(c) ours, all four modes with top 10, rank, entropy and a full set of sampling parameters; (d) ours, other parameters
on a cached prompt; (e) ours, the last 5% of a cached prompt edited. Peers are timed where they are installed
(`pip install -r benchmarks/peers.txt`). Minima are compared, since the machine's noise only ever adds.
"""

import argparse
import importlib.util
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from inspector import Inspector, SamplingParams

PARAMS = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02, repetition_penalty=1.1)
OTHER = SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.01, repetition_penalty=1.2)
TARGETS = {
    "float32": {"c / a": 1.15, "c / b": 1.0, "d / a": 0.35, "e / a": 0.25},
    "bfloat16": {"c / a": 1.3, "c / b": 1.0, "d / a": 0.35, "e / a": 0.25},
}


def prompt_ids(inspector: Inspector, tokens: int) -> list[int]:
    """A text of real words, as many tokens as asked."""
    words = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8") * 20
    return list(inspector.loaded.vocabulary.tokenizer(words)["input_ids"])[:tokens]


@torch.inference_mode()
def bare(inspector: Inspector, ids: list[int]) -> None:
    inspector.loaded.model(torch.tensor([ids]))


@torch.inference_mode()
def naive(inspector: Inspector, ids: list[int]) -> tuple:
    logprobs = inspector.loaded.model(torch.tensor([ids])).logits[0, :-1].float().log_softmax(dim=-1)
    own = logprobs.gather(1, torch.tensor(ids[1:])[:, None])
    top = logprobs.topk(10, dim=1)
    rank = 1 + (logprobs > own).sum(dim=1)
    entropy = -(logprobs.exp() * logprobs).sum(dim=1)
    return own, top, rank, entropy


def ours(inspector: Inspector, ids: list[int], params: SamplingParams) -> None:
    inspector.inspect(ids, params=params, top_n=10)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(inspector: Inspector, tokens: int, rounds: int) -> dict[str, float]:
    """Least seconds of each variant."""
    ids = prompt_ids(inspector, tokens)
    edited = ids[: tokens * 95 // 100] + [i + 1 for i in ids[tokens * 95 // 100 :]]
    cold = Inspector(inspector.loaded, cache_bytes=0)
    ours(cold, ids[:64], PARAMS)  # compile
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        warm = Inspector(inspector.loaded)
        ours(warm, ids, PARAMS)
        for name, work in {
            "a": lambda: bare(inspector, ids),
            "b": lambda: naive(inspector, ids),
            "c": lambda: ours(cold, ids, PARAMS),
            "d": lambda warm=warm: ours(warm, ids, OTHER),
            "e": lambda warm=warm: ours(warm, edited, OTHER),
        }.items():
            times.setdefault(name, []).append(seconds(work))
    return {name: min(values) for name, values in times.items()}


def peers(inspector: Inspector, tokens: int) -> dict[str, float]:
    """Seconds of other tools' scoring of the same text, where they are installed."""
    found = {}
    tokenizer, model = inspector.loaded.vocabulary.tokenizer, inspector.loaded.model
    text = tokenizer.decode(prompt_ids(inspector, tokens))
    if importlib.util.find_spec("lm_eval"):
        from lm_eval.api.instance import Instance
        from lm_eval.models.huggingface import HFLM

        harness = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1, max_length=tokens)
        request = [Instance("loglikelihood_rolling", {}, (text,), 0)]
        found["lm-evaluation-harness"] = seconds(lambda: harness.loglikelihood_rolling(request, disable_tqdm=True))
    if importlib.util.find_spec("minicons"):
        from minicons.scorer import IncrementalLMScorer

        scorer = IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
        found["minicons"] = seconds(lambda: scorer.token_score(text, rank=True))
    return found


def ratios(times: dict[str, float]) -> dict[str, float]:
    return {pair: times[pair[0]] / times[pair[-1]] for pair in ("c / a", "c / b", "d / a", "e / a")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="also 512 to 8,192 tokens")
    parser.add_argument("--out", type=Path, default=Path("build/benchmark.json"))
    options = parser.parse_args()
    torch.set_num_threads(2)
    record: dict = {"tokens": options.tokens, "machine": platform.processor() or platform.machine(), "torch": torch.__version__}
    for dtype in ("float32", "bfloat16"):
        inspector = Inspector.load("embedded", dtype=dtype, device="cpu")
        times = measure(inspector, options.tokens, options.rounds)
        record[dtype] = {"seconds": times, "ratios": ratios(times), "targets": TARGETS[dtype], "peers": peers(inspector, options.tokens)}
        print(f"\n{dtype}, {options.tokens} tokens  " + "  ".join(f"({n}) {s:.2f} s" for n, s in times.items()))
        for pair, ratio in ratios(times).items():
            print(f"  {pair}  {ratio:.2f}  (target ≤ {TARGETS[dtype][pair]})")
        for name, value in record[dtype]["peers"].items():
            print(f"  {name}  {value:.2f} s")
        if options.growth:
            record[dtype]["growth"] = growth = {n: measure(inspector, n, 1) for n in (512, 1024, 2048, 4096, 8192)}
            for n, at in growth.items():
                print(f"  {n:5d} tokens  (a) {at['a']:.2f} s  (c) {at['c']:.2f} s  (b) {at['b']:.2f} s")
        del inspector
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
