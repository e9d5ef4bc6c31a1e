"""A GGUF file is converted once, atomically; what is broken is made again."""

import json
import os

import numpy as np
import pytest
import torch

from inspector import Inspector, ModelError, gguf_cache

gguf = pytest.importorskip("gguf")
H, LAYERS, HEADS, V = 32, 2, 4, 262


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A Llama of two layers in float32, its tokenizer byte-level BPE over 256 bytes and a few merges."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(H)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(H // HEADS)
    writer.add_vocab_size(V)
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = ["<|end|>", *sorted(ByteLevel.alphabet()), "th", "the", "Ġc", "Ġca", "Ġcat"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(pieces)
    writer.add_token_types([3] + [1] * (len(pieces) - 1))
    writer.add_token_merges(["t h", "th e", "Ġ c", "Ġc a", "Ġca t"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    random = np.random.default_rng(0)

    def add(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.3).astype(np.float32))

    add("token_embd.weight", V, H)
    writer.add_tensor("output_norm.weight", np.ones(H, dtype=np.float32))
    add("output.weight", V, H)
    for i in range(LAYERS):
        for name, shape in {
            "attn_q": (H, H), "attn_k": (H, H), "attn_v": (H, H), "attn_output": (H, H),
            "ffn_gate": (64, H), "ffn_up": (64, H), "ffn_down": (H, 64),
        }.items():  # fmt: skip
            add(f"blk.{i}.{name}.weight", *shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(H, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGIT_INSPECTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def folder_of(cache):
    (folder,) = cache.iterdir()
    return folder


def test_a_gguf_file_is_scored_as_transformers_scores_it(file, cache):
    import transformers

    report = Inspector.load(str(file), device="cpu").inspect("the cat")
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ids = report.run["prompt_ids"]
    with torch.inference_mode():
        logprobs = model(torch.tensor([ids])).logits[0].double().log_softmax(1)
    assert report.tokens["token"].tolist() == ["the", " cat"]
    assert report.tokens["raw_logprob"][1] == pytest.approx(float(logprobs[0, ids[1]]), abs=1e-5)


def test_the_source_records_the_files_hash(file, cache):
    import hashlib

    source = Inspector.load(str(file), device="cpu").loaded.source
    assert (source.kind, source.revision) == ("gguf", "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest())


def test_the_second_load_converts_nothing(file, cache):
    stages = []
    gguf_cache.converted_folder(file, lambda stage, done, total: stages.append(stage))
    assert "dequantising the weights" in stages
    made = {p.name: p.stat().st_mtime_ns for p in folder_of(cache).iterdir()}
    stages.clear()
    gguf_cache.converted_folder(file, lambda stage, done, total: stages.append(stage))
    assert "dequantising the weights" not in stages
    assert {p.name: p.stat().st_mtime_ns for p in folder_of(cache).iterdir()} == made


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)


def lose_a_file(folder):
    (folder / "tokenizer.json").unlink()


def lose_the_manifest(folder):
    (folder / "manifest.json").unlink()


def break_the_manifest(folder):
    (folder / "manifest.json").write_text("{")


def empty_the_manifest(folder):
    (folder / "manifest.json").write_text("{}")


def empty_the_folder(folder):
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "damage", [truncate, flip_a_byte, lose_a_file, lose_the_manifest, break_the_manifest, empty_the_manifest, empty_the_folder]
)
def test_a_damaged_cache_repairs_itself(damage, file, cache):
    expected = Inspector.load(str(file), device="cpu").inspect("the cat").tokens
    damage(folder_of(cache))
    if damage is empty_the_manifest:
        truncate(folder_of(cache))
    assert Inspector.load(str(file), device="cpu").inspect("the cat").tokens.equals(expected)
    assert gguf_cache.is_whole(folder_of(cache))


def test_a_conversion_that_dies_leaves_nothing_that_looks_whole(file, cache, monkeypatch):
    def die(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf_cache, "_write_manifest", die)
    with pytest.raises(KeyboardInterrupt):
        gguf_cache.converted_folder(file)
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="kills with a signal")
def test_a_conversion_that_is_killed_is_made_again(file, cache):
    """The process dies without cleaning up, after the weights are written and before the folder is in place."""
    import subprocess
    import sys

    code = (
        "import os, signal, pathlib, inspector.gguf_cache as g\n"
        "g._put = lambda partial, folder: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"g.converted_folder(pathlib.Path({str(file)!r}))\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(gguf_cache.__file__)))
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True)
    assert done.returncode == -9
    assert not [p for p in cache.iterdir() if not p.name.startswith(".")]
    folder, _ = gguf_cache.converted_folder(file)
    assert gguf_cache.is_whole(folder)


def test_what_a_killed_process_left_is_removed_later(file, cache):
    folder, _ = gguf_cache.converted_folder(file)
    old, young = (cache / f".{folder.name}-{name}" for name in ("old", "young"))
    for path in (old, young):
        path.mkdir()
    os.utime(old, (0, 0))
    lose_the_manifest(folder)
    gguf_cache.converted_folder(file)
    assert not old.exists() and young.exists()


def test_another_process_that_was_faster_is_believed(file, cache, monkeypatch):
    folder, _ = gguf_cache.converted_folder(file)
    made = (folder / "manifest.json").stat().st_ino
    answers = iter([False])  # the first look finds nothing, as if the other process had not finished yet
    whole = gguf_cache.is_whole
    monkeypatch.setattr(gguf_cache, "is_whole", lambda f: next(answers, None) is not False and whole(f))
    gguf_cache.converted_folder(file)
    assert (folder / "manifest.json").stat().st_ino == made
    assert [p.name for p in cache.iterdir()] == [folder.name]


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 100, "half"])
def test_a_broken_gguf_file_is_one_clear_error(content, file, cache, tmp_path):
    path = tmp_path / "broken.gguf"
    whole = file.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(ModelError, match=r"cannot read the GGUF file .*broken\.gguf") as caught:
        Inspector.load(str(path), device="cpu")
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_the_manifest_covers_every_file(file, cache):
    folder, _ = gguf_cache.converted_folder(file)
    listed = json.loads((folder / "manifest.json").read_text())
    assert set(listed) == {p.name for p in folder.iterdir()} - {"manifest.json"}
    assert "model.safetensors" in listed
