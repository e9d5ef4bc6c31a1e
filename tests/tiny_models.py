"""Tiny random-weight models and tokenizers, built in memory; nothing is downloaded."""

import json

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from inspector import Inspector
from inspector.models import ModelSource, wrap_model

CORPUS = [
    "the cat sat on the mat. the red fox inspects the red mat",
    "The capital of France is Paris, and a cat sat.",
    "Question: open door\nAnswer: door.open()\n\n1 + 1 = 2",
]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_level_tokenizer(vocab_size=300, bos=None, add_bos=False, chat_template=None):
    """Byte-level BPE, as GPT-2's and SmolLM2's. Specials first: <|end|> is 0, the end of sequence."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    specials = ["<|end|>", "<|user|>", "<|assistant|>", *([bos] if bos else [])]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        CORPUS, BpeTrainer(vocab_size=vocab_size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    )
    if add_bos:
        _prepend(raw, bos)
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", bos_token=bos, chat_template=chat_template)


def sentencepiece_tokenizer(vocab_size=420, add_bos=True, chat_template=None, dummy_space=True):
    """BPE over characters with ▁ for the space and <0x..> for bytes without a piece, as Llama's and Gemma's."""
    raw = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    steps = [normalizers.Replace(" ", "▁")]
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *steps] if dummy_space else steps)
    raw.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    strip = [decoders.Strip(" ", 1, 0)] if dummy_space else []
    raw.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    specials = ["<unk>", "<s>", "</s>", "<|end|>", "<|user|>", "<|assistant|>", *(f"<0x{byte:02X}>" for byte in range(256))]
    raw.train_from_iterator(CORPUS, BpeTrainer(vocab_size=vocab_size, special_tokens=specials, show_progress=False))
    # the byte pieces are pieces, not special tokens
    parts = json.loads(raw.to_str())
    parts["added_tokens"] = [t for t in parts["added_tokens"] if not t["content"].startswith("<0x")]
    raw = Tokenizer.from_str(json.dumps(parts))
    if add_bos:
        _prepend(raw, "<s>")
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=chat_template)


def _prepend(raw, bos):
    raw.post_processor = TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, raw.token_to_id(bos))])


def _build(model_class, config, seed=0, scale=0.5):
    """Weights larger than a fresh initialisation's, so that the scores are far from uniform."""
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "norm" not in name:
                weight.normal_(0, scale if "embed" in name or "wte" in name or "lm_head" in name else scale / 2)
    return model


def llama(vocab_size=300, **config):
    options = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "eos_token_id": 0, "bos_token_id": None, "pad_token_id": None, "tie_word_embeddings": True,
    }  # fmt: skip
    return _build(LlamaForCausalLM, LlamaConfig(vocab_size=vocab_size, **{**options, **config}))


def gpt2(vocab_size=300, **config):
    options = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "eos_token_id": 0, "bos_token_id": 0}
    return _build(GPT2LMHeadModel, GPT2Config(vocab_size=vocab_size, **{**options, **config}))


def gemma2(vocab_size=420, **config):
    options = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "query_pre_attn_scalar": 8, "max_position_embeddings": 512, "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"], "final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    return _build(Gemma2ForCausalLM, Gemma2Config(vocab_size=vocab_size, **{**options, **config}))


def cohere(vocab_size=300, **config):
    options = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 512, "logit_scale": 0.25, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    return _build(CohereForCausalLM, CohereConfig(vocab_size=vocab_size, **{**options, **config}))


def granite(vocab_size=300, **config):
    options = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "logits_scaling": 4.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.5,
        "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    return _build(GraniteForCausalLM, GraniteConfig(vocab_size=vocab_size, **{**options, **config}))


def opt(vocab_size=300):
    config = OPTConfig(
        vocab_size=vocab_size, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, dropout=0.0,
        max_position_embeddings=128, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    return _build(OPTForCausalLM, config)


def mixtral(vocab_size=300):
    config = MixtralConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=4, max_position_embeddings=128, bos_token_id=None, eos_token_id=0, sliding_window=None,
    )  # fmt: skip
    model = _build(MixtralForCausalLM, config)
    model.set_experts_implementation("eager")  # the only one in float64
    return model


def inspector(model, tokenizer):
    """An Inspector of a model in memory."""
    return Inspector(wrap_model(model, tokenizer, ModelSource("tiny", "folder", "tiny")))
