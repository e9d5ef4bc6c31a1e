"""Where models come from, and that their scores are those of a plain forward pass, quirks included."""

import json

import pytest
import tiny_models
import torch
import transformers

from inspector import InputError, Inspector, ModelError, SamplingParams, forward
from inspector.models import find_source

TEXT = "the cat sat on the mat"
MODELS = {
    "llama": (tiny_models.llama, tiny_models.byte_level_tokenizer),
    "llama_untied": (lambda: tiny_models.llama(tie_word_embeddings=False), tiny_models.byte_level_tokenizer),
    "gpt2": (tiny_models.gpt2, tiny_models.byte_level_tokenizer),
    "gemma2": (tiny_models.gemma2, tiny_models.sentencepiece_tokenizer),
    "cohere": (tiny_models.cohere, tiny_models.byte_level_tokenizer),
    "granite": (tiny_models.granite, tiny_models.byte_level_tokenizer),
    "opt": (tiny_models.opt, tiny_models.byte_level_tokenizer),
    "mixtral": (tiny_models.mixtral, tiny_models.byte_level_tokenizer),
}


def save(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def plain_logits(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0]


def assert_scores_are(report, model, tolerance=1e-4):
    """Rows 1… of the given text against log-softmax of one plain float64 forward pass."""
    ids = report.run["prompt_ids"] + report.run["completion_ids"]
    expected = plain_logits(model.double(), ids)
    rows = report.tokens[report.tokens["sequence"] == 0]
    assert rows["token_id"].tolist() == ids
    for t in range(1, len(ids)):
        assert rows["raw_logit"][t] == pytest.approx(float(expected[t - 1, ids[t]]), abs=tolerance)
        assert rows["raw_logprob"][t] == pytest.approx(float(expected[t - 1].log_softmax(0)[ids[t]]), abs=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_a_saved_model_equal_a_plain_forward_pass(name, tmp_path):
    model, tokenizer = (make() for make in MODELS[name])
    inspector = Inspector.load(save(model, tokenizer, tmp_path / "model"), device="cpu")
    assert_scores_are(inspector.inspect(TEXT, completion=" and the fox"), model)


@pytest.mark.parametrize("name", MODELS)
def test_continuations_equal_scoring_them_as_a_completion(name):
    inspector = tiny_models.inspector(*(make() for make in MODELS[name]))
    report = inspector.inspect(TEXT, continuations=2, max_new_tokens=12, seed=3, params=SamplingParams(ignore_eos=True))
    for number in (1, 2):
        drawn = report.tokens[report.tokens["sequence"] == number]
        again = inspector.inspect(TEXT, completion=drawn["token_id"].tolist()).tokens.query("source == 'completion'")
        assert drawn["raw_logprob"].tolist() == pytest.approx(again["raw_logprob"].tolist(), abs=1e-4)


# ---- quirks of architectures


def test_soft_capped_logits_stay_inside_the_cap():
    """Raw logits are after the model's own soft-capping: cap · tanh(x / cap)."""
    model = tiny_models.gemma2(final_logit_softcapping=3.0)
    report = tiny_models.inspector(model, tiny_models.sentencepiece_tokenizer()).inspect(TEXT, top_n=3)
    assert report.alternatives["raw_logit"].abs().max() < 3.0
    model.config.final_logit_softcapping = None
    uncapped = plain_logits(model, report.run["prompt_ids"])
    t, token_id = 3, report.run["prompt_ids"][3]
    assert report.tokens["raw_logit"][t] == pytest.approx(3.0 * float(torch.tanh(uncapped[t - 1, token_id] / 3.0)), abs=1e-4)


def test_the_soft_cap_has_the_right_form():
    inspector = tiny_models.inspector(tiny_models.gemma2(final_logit_softcapping=30.0), tiny_models.sentencepiece_tokenizer())
    model = inspector.loaded.model
    direction = model.lm_head.weight[7] / model.lm_head.weight[7].norm() ** 2
    assert float(inspector.loaded.head(124.0 * direction[None].detach())[0, 7]) == pytest.approx(29.98, abs=0.01)


def test_logit_scale_is_part_of_the_model():
    weights, scaled = tiny_models.cohere(logit_scale=1.0), tiny_models.cohere(logit_scale=0.25)
    one = tiny_models.inspector(weights, tiny_models.byte_level_tokenizer()).inspect(TEXT).tokens["raw_logit"]
    quarter = tiny_models.inspector(scaled, tiny_models.byte_level_tokenizer()).inspect(TEXT).tokens["raw_logit"]
    assert (one[1:] / 4).tolist() == pytest.approx(quarter[1:].tolist(), abs=1e-5)


def test_a_sliding_window_sees_full_attention_until_the_window_is_full():
    layers = dict.fromkeys(("sliding_window",), 4) | {"layer_types": ["sliding_attention"], "num_hidden_layers": 1}
    narrow = tiny_models.inspector(tiny_models.gemma2(**layers), tiny_models.sentencepiece_tokenizer())
    full = tiny_models.inspector(tiny_models.gemma2(**{**layers, "layer_types": ["full_attention"]}), tiny_models.sentencepiece_tokenizer())
    ids = [1, *range(300, 310)]
    a, b = (i.inspect(ids).tokens["raw_logit"] for i in (narrow, full))
    # hidden state t sees 4 positions, so row t + 1 differs first where t = 4
    assert (a - b).abs()[1:5].max() < 1e-5
    assert (a - b).abs()[5:].min() > 1e-5


@pytest.mark.parametrize("block", [1, 3, 5])
def test_a_sliding_window_in_blocks_equals_one_pass(block, monkeypatch):
    inspector = tiny_models.inspector(tiny_models.gemma2(), tiny_models.sentencepiece_tokenizer())
    ids = [1, *(300 + i % 90 for i in range(30))]
    whole = inspector.inspect(ids).tokens["raw_logprob"]
    monkeypatch.setattr(forward, "BLOCK_TOKENS", block)
    assert inspector.inspect(ids).tokens["raw_logprob"][1:].tolist() == pytest.approx(whole[1:].tolist(), abs=1e-4)


def test_a_sliding_window_after_a_cached_prompt_equals_one_pass():
    inspector = tiny_models.inspector(tiny_models.gemma2(), tiny_models.sentencepiece_tokenizer())
    ids = [1, *(300 + i % 90 for i in range(30))]
    whole = inspector.inspect(ids).tokens["raw_logprob"][1:].tolist()
    for boundary in (1, 3, 4, 17):
        for continuations in (0, 1):
            split = inspector.inspect(ids[:boundary], completion=ids[boundary:], continuations=continuations, max_new_tokens=2)
            rows = split.tokens[split.tokens["sequence"] == 0]
            assert rows["raw_logprob"][1:].tolist() == pytest.approx(whole, abs=1e-4)


def test_several_end_ids_are_all_found(tmp_path):
    model = tiny_models.llama(eos_token_id=[2, 11])
    inspector = Inspector.load(save(model, tiny_models.byte_level_tokenizer(), tmp_path), device="cpu")
    assert {2, 11} <= set(inspector.loaded.eos_ids)
    report = inspector.inspect(TEXT, params=SamplingParams(min_tokens=3), token_ids=[2, 11], top_n=0)
    listed = report.alternatives[report.alternatives["listed_as"] == "requested"]
    assert set(listed["token_id"]) == {2, 11}
    assert set(listed["cut_by"]) == {"min_tokens"}


def test_end_ids_that_only_the_generation_config_names(tmp_path):
    model = tiny_models.llama()
    model.generation_config.eos_token_id = [0, 17]
    assert Inspector.load(save(model, tiny_models.byte_level_tokenizer(), tmp_path), device="cpu").loaded.eos_ids == (0, 17)


def test_a_head_wider_than_the_tokenizer():
    inspector = tiny_models.inspector(tiny_models.llama(vocab_size=320), tiny_models.byte_level_tokenizer(300))
    report = inspector.inspect([5, 310, 319], top_n=5, token_ids=[305])
    assert report.tokens["token"].tolist()[1:] == ["<id 310>", "<id 319>"]
    assert report.tokens["token_bytes"].tolist()[1:] == ["", ""]
    assert report.run["vocab_size"] == 320
    assert "<id 305>" in set(report.alternatives["token"])
    assert_scores_are(report, inspector.loaded.model)
    with pytest.raises(InputError, match=r"\[0, 319\], got 320"):
        inspector.inspect([5, 320])


def test_the_logprobs_of_the_whole_padded_vocabulary_sum_to_one():
    report = tiny_models.inspector(tiny_models.llama(vocab_size=98), tiny_models.byte_level_tokenizer(300)).inspect([1, 2, 3], top_n=98)
    for _, row in report.alternatives.groupby("position"):
        assert len(row) == 98
        assert row["raw_logprob"].astype("float64").map(lambda x: 2.718281828459045**x).sum() == pytest.approx(1.0, abs=1e-4)


def test_generation_config_defaults_never_leak(tmp_path):
    model = tiny_models.llama()
    own = {"repetition_penalty": 1.5, "top_k": 5, "temperature": 0.3, "top_p": 0.5, "do_sample": True}
    plain = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer()).inspect(
        TEXT, continuations=1, max_new_tokens=6, seed=1
    )
    model.generation_config = transformers.GenerationConfig(eos_token_id=0, **own)
    report = Inspector.load(save(model, tiny_models.byte_level_tokenizer(), tmp_path), device="cpu").inspect(
        TEXT, continuations=1, max_new_tokens=6, seed=1
    )
    assert report.tokens["processed_logit"].tolist()[1:] == report.tokens["raw_logit"].tolist()[1:]
    assert report.tokens["token_id"].tolist() == plain.tokens["token_id"].tolist()
    note = next(n for n in report.notes if "generation_config" in n)
    assert all(f"{name}={value}" in note for name, value in own.items() if name != "do_sample")


def test_a_text_longer_than_the_context_is_refused_with_both_numbers():
    inspector = tiny_models.inspector(tiny_models.llama(max_position_embeddings=16), tiny_models.byte_level_tokenizer())
    inspector.inspect(list(range(10, 26)))
    with pytest.raises(InputError, match=r"17 tokens.*holds 16"):
        inspector.inspect(list(range(10, 27)))
    with pytest.raises(InputError, match=r"10 tokens and 7 new tokens.*holds 16"):
        inspector.inspect(list(range(10, 20)), continuations=1, max_new_tokens=7)


def test_the_learned_positions_of_gpt2_are_a_context_too():
    inspector = tiny_models.inspector(tiny_models.gpt2(n_positions=8), tiny_models.byte_level_tokenizer())
    with pytest.raises(InputError, match=r"9 tokens.*holds 8"):
        inspector.inspect(list(range(10, 19)))


def test_bfloat16_reductions_are_float32():
    model = tiny_models.llama().to(torch.bfloat16)
    inspector = tiny_models.inspector(model, tiny_models.byte_level_tokenizer())
    report = inspector.inspect(TEXT)
    ids = report.run["prompt_ids"]
    logits = plain_logits(model, ids).float()
    expected = logits[:-1].log_softmax(1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert report.tokens["raw_logprob"][1:].tolist() == pytest.approx(expected.tolist(), abs=0.1)
    assert report.run["dtype"] == "bfloat16"


# ---- folders that must be refused


def test_an_untied_head_without_weights_is_refused(tmp_path):
    model = tiny_models.llama(tie_word_embeddings=False)
    folder = tmp_path / "model"
    save(model, tiny_models.byte_level_tokenizer(), folder)
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("lm_head.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        Inspector.load(str(folder), device="cpu")


def test_weights_of_the_wrong_shape_are_refused(tmp_path):
    folder = save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "vocab_size": 310}))
    with pytest.raises(ModelError, match=r"lacks weights for model\.embed_tokens\.weight"):
        Inspector.load(folder, device="cpu")


def test_pickled_weights_are_refused(tmp_path):
    folder = tmp_path / "model"
    model = tiny_models.llama()
    save(model, tiny_models.byte_level_tokenizer(), folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot load"):
        Inspector.load(str(folder), device="cpu")


def test_a_models_own_code_is_never_run(tmp_path):
    folder = tmp_path / "model"
    save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    with pytest.raises(ModelError):
        Inspector.load(str(folder), device="cpu")
    assert not (tmp_path / "ran").exists()


def test_truncated_weights_are_refused(tmp_path):
    folder = save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="cannot load"):
        Inspector.load(folder, device="cpu")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    tiny_models.llama().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot load"):
        Inspector.load(str(tmp_path), device="cpu")


def test_a_model_too_large_for_the_machine_is_refused_with_the_sizes(tmp_path, monkeypatch):
    import psutil

    folder = save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000})())
    with pytest.raises(ModelError, match=r"needs 0\.000\d+ GB as torch\.float32, but cpu has 1e-06 GB free"):
        Inspector.load(folder, device="cpu")


@pytest.mark.parametrize("name", ["", "./nothing/here", "/no/such/folder", "a/b/c", "two words", "~/no/such"])
def test_a_name_that_means_nothing_is_refused(name):
    with pytest.raises(ModelError, match=r"neither 'embedded', a folder, a \.gguf file nor a Hub id"):
        find_source(name)


def test_a_gguf_file_that_is_not_there():
    with pytest.raises(ModelError, match=r"no GGUF file at nowhere\.gguf"):
        find_source("nowhere.gguf")


def test_a_hub_id_may_name_a_revision():
    source = find_source("owner/name@v1.0")
    assert (source.kind, source.location, source.revision) == ("hub", "owner/name", "v1.0")


def test_the_embedded_model_is_named_for_what_it_is(embedded):
    assert embedded.loaded.source.name == "SmolLM2-135M-Instruct (Q4_1 weights, dequantised)"
    assert embedded.loaded.source.revision.startswith("sha256:")


def test_without_its_package_the_embedded_model_comes_from_the_hub(monkeypatch):
    monkeypatch.setattr("inspector.models.EMBEDDED_PACKAGE", "no_such_package_here")
    source = find_source("embedded")
    assert (source.kind, source.location) == ("hub", "HuggingFaceTB/SmolLM2-135M-Instruct")


@pytest.mark.parametrize(("option", "word", "message"), [
    ("dtype", "float8", "dtype must be auto, float32, bfloat16, float16, got 'float8'"),
    ("device", "gpu", "device must be auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
    ("device", "meta", "device must be auto, cpu, cuda, cuda:N or mps, got 'meta'"),
    ("kernel_path", "fast", "kernels must be one of"),
])  # fmt: skip
def test_a_wrong_word_for_an_option_lists_the_right_ones(option, word, message, tmp_path):
    folder = save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), tmp_path)
    with pytest.raises((ModelError, InputError), match=message):
        Inspector.load(folder, **{"device": "cpu", option: word})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_cuda_device_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match="0 CUDA devices"):
        Inspector.load(save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), tmp_path), device="cuda")


# ---- the Hub, from a local cache, offline


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub cache that holds owner/tiny, and no network."""
    import huggingface_hub.constants as constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--owner--tiny"
    save(tiny_models.llama(), tiny_models.byte_level_tokenizer(), repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True, raising=False)
    return commit


def test_a_hub_model_records_its_commit(hub):
    inspector = Inspector.load("owner/tiny", device="cpu")
    assert inspector.loaded.source.revision == hub
    assert_scores_are(inspector.inspect(TEXT), tiny_models.llama())


def test_a_hub_model_that_is_not_there(hub):
    with pytest.raises(ModelError, match="owner/absent"):
        Inspector.load("owner/absent", device="cpu")


# ---- two models in one process


def test_models_hold_no_common_state(tiny_llama):
    before = tiny_llama.inspect(TEXT).tokens
    other = tiny_models.inspector(tiny_models.gpt2(), tiny_models.byte_level_tokenizer())
    other.inspect(TEXT)
    assert tiny_llama.inspect(TEXT).tokens.equals(before)


def test_a_dropped_model_is_freed():
    import gc
    import weakref

    inspector = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer())
    inspector.inspect(TEXT, continuations=1, max_new_tokens=2)
    ghost = weakref.ref(inspector.loaded.model)
    del inspector
    gc.collect()
    assert ghost() is None


def test_an_unsplittable_head_is_refused():
    class Odd(type(tiny_models.llama())):
        def forward(self, input_ids=None, **kwargs):
            out = super().forward(input_ids=input_ids, **kwargs)
            out.logits = out.logits + (0 if input_ids is None else 1)
            return out

    model = tiny_models.llama()
    model.__class__ = Odd
    with pytest.raises(ModelError, match="cannot be split"):
        tiny_models.inspector(model, tiny_models.byte_level_tokenizer())
