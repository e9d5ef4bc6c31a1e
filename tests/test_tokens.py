"""Text to ids to pieces and back: offsets, bytes, special tokens, BOS, chat."""

import pytest
import tiny_models
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from inspector import InputError, SamplingParams
from inspector.processors import resolve
from inspector.tokens import Vocabulary, encode_plain, pieces_text, tokenize, tokenize_chat, visible


@pytest.fixture(scope="module")
def byte_level():
    return Vocabulary(tiny_models.byte_level_tokenizer(), head_width=320)


@pytest.fixture(scope="module")
def sentencepiece():
    return Vocabulary(tiny_models.sentencepiece_tokenizer(add_bos=False), head_width=420)


@pytest.fixture(params=["byte_level", "sentencepiece"])
def vocabulary(request):
    return request.getfixturevalue(request.param)


TEXTS = [
    "The cat sat on the mat.", " leading and trailing ", "p ! q , r", "say 'sure' now", "\n7) Total: 35", "a\tb\r\nc\r\r\n\n  d",
    "🦉", "I love 🍕 and 👩\u200d👩\u200d👧", "naïve café — “quoted”…", "水果", "x\x00y", "'\"\\ the", "<b>&amp;</b>", "\u200b\ufeff", "ÿþ",
    "a\ufffdb", "▁", "<0x41>", "ﬁ ½ Å",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokens_spell_the_text(text, vocabulary):
    got = tokenize(vocabulary, text)
    assert got.text == text
    if text != "▁":  # which SentencePiece itself writes for a space
        assert b"".join(got.pieces).decode() in (text, " " + text)


@pytest.mark.parametrize("text", TEXTS)
def test_the_spans_cover_the_text_in_order(text, vocabulary):
    got = tokenize(vocabulary, text)
    assert all(0 <= s <= e <= len(text) for s, e in zip(got.starts, got.ends))
    assert list(got.starts) == sorted(got.starts) and list(got.ends) == sorted(got.ends)
    covered = {c for s, e in zip(got.starts, got.ends) for c in range(s, e)}
    assert covered == set(range(len(text)))


@pytest.mark.parametrize("text", TEXTS)
def test_a_token_that_is_whole_characters_spans_its_own_text(text, byte_level):
    got = tokenize(byte_level, text)
    for piece, start, end in zip(got.pieces, got.starts, got.ends):
        try:
            assert text[start:end] == piece.decode()
        except UnicodeDecodeError:
            assert piece in text[start:end].encode()


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_tokenizer(text, vocabulary):
    assert list(tokenize(vocabulary, text).ids) == vocabulary.tokenizer(text)["input_ids"]


def test_parts_of_a_character_share_its_span_and_show_bytes(byte_level):
    got = tokenize(byte_level, "a🦉b")
    assert got.pieces == (b"a", b"\xf0", b"\x9f", b"\xa6", b"\x89", b"b")
    assert list(zip(got.starts, got.ends)) == [(0, 1), (1, 2), (1, 2), (1, 2), (1, 2), (2, 3)]
    assert [byte_level.text_of(i) for i in got.ids] == ["a", "\\xf0", "\\x9f", "\\xa6", "\\x89", "b"]


def test_byte_fallback_pieces_are_bytes(sentencepiece):
    got = tokenize(sentencepiece, "水")
    assert b"".join(got.pieces) == " 水".encode()
    assert got.pieces[-3:] == (b"\xe6", b"\xb0", b"\xb4")
    assert list(zip(got.starts, got.ends))[-3:] == [(0, 1)] * 3


def test_the_synthetic_space_has_no_width(sentencepiece):
    got = tokenize(sentencepiece, "水果")
    assert (got.text, got.pieces[0]) == ("水果", b" ")
    assert (got.starts[0], got.ends[0]) == (0, 0)


def test_a_real_leading_space_is_not_taken_for_the_synthetic_one(sentencepiece):
    got = tokenize(sentencepiece, " the")
    assert got.text == " the"
    assert got.ends[-1] == 4


def test_a_completion_has_no_synthetic_space(sentencepiece):
    """`sun` + `set` is scored as `sunset`, not as `sun set`."""
    got = tokenize(sentencepiece, "the sun", "set")
    assert got.text == "the sunset"
    assert b"".join(got.pieces) == b" the sunset"


def test_a_bad_word_of_sentencepiece_is_cut_with_and_without_a_space(sentencepiece):
    got = resolve(SamplingParams(bad_words=("cat",)), sentencepiece, ())
    spelt = {b"".join(sentencepiece.bytes_of(i) for i in word) for word in got.bad_words}
    assert spelt == {b"cat", b" cat"}


def test_one_text_two_ids_look_different(byte_level):
    spaced, bare = encode_plain(byte_level, " cat"), encode_plain(byte_level, "cat")
    assert spaced != bare
    assert visible(byte_level.text_of(spaced[0])).startswith("·")


# ---- what a person sees


@pytest.mark.parametrize(("text", "shown"), [
    (" ", "·"), ("\n", "↵"), ("\t", "⇥"), ("\r", "␍"), ("\x00", "\\x00"), ("\x1b[0m", "\\x1b[0m"), ("\x7f", "\\x7f"), ("\x85", "\\x85"),
    (" the", "·the"), ("\n\n", "↵↵"), ("'\"\\", "'\"\\"), ("é", "é"), ("<b>", "<b>"),
])  # fmt: skip
def test_white_space_and_control_characters_are_visible(text, shown):
    assert visible(text) == shown


def test_special_tokens_and_quotes_keep_their_text(byte_level):
    assert byte_level.text_of(0) == "<|end|>"
    for char in "'\"\\":
        assert byte_level.text_of(encode_plain(byte_level, char)[0]) == char


@pytest.mark.parametrize("token_id", [300, 319, 5000])
def test_an_id_without_text(token_id, byte_level):
    assert byte_level.text_of(token_id) == f"<id {token_id}>"
    assert byte_level.bytes_of(token_id) == b""
    assert not byte_level.has_text(token_id)


def test_added_tokens_beyond_the_base_vocabulary_have_text():
    tokenizer = tiny_models.byte_level_tokenizer()
    tokenizer.add_tokens(["<new one>"])
    vocabulary = Vocabulary(tokenizer, head_width=320)
    assert vocabulary.text_of(300) == "<new one>"
    assert [vocabulary.text_of(i) for i in (301, 319)] == ["<id 301>", "<id 319>"]
    assert tokenize(vocabulary, [300, 310]).text == "<new one>"


def test_bytes_that_are_no_character_are_shown_not_raised(byte_level):
    lead, rest = byte_level.tokenizer.convert_tokens_to_ids("Ã"), encode_plain(byte_level, " a")
    got = tokenize(byte_level, [lead, *rest])
    assert got.text == "\\xc3 a"
    assert b"".join(got.pieces) == b"\xc3 a"
    assert (got.starts[0], got.ends[0]) == (0, 4)


def test_the_replacement_character_only_where_it_was_typed(byte_level):
    assert "\ufffd" in tokenize(byte_level, "a\ufffdb").text
    owl = tokenize(byte_level, "🦉").ids
    assert "\ufffd" not in "".join(byte_level.text_of(i) for i in owl)


@pytest.mark.parametrize(("pieces", "text", "spans"), [
    ([], "", []),
    ([b"ab", b"", b"c"], "abc", [(0, 2), (2, 2), (2, 3)]),
    ([b"\xf0\x9f", b"\xa6\x89"], "🦉", [(0, 1), (0, 1)]),
    ([b"a\xf0", b"\x9f\xa6\x89b"], "a🦉b", [(0, 2), (1, 3)]),
    ([b"\x81"], "\\x81", [(0, 4)]),
    ([b"\xff", b"\xfe"], "\\xff\\xfe", [(0, 4), (4, 8)]),
    ([b"\xf0\x9f"], "\\xf0\\x9f", [(0, 8)]),
])  # fmt: skip
def test_pieces_to_text_and_spans(pieces, text, spans):
    got, starts, ends = pieces_text(pieces)
    assert (got, list(zip(starts, ends))) == (text, spans)


# ---- a tokenizer that changes the text


def test_a_normalising_tokenizer_keeps_offsets_into_the_original():
    raw = Tokenizer(models.WordPiece({"[UNK]": 0, "caf": 1, "##e": 2}, unk_token="[UNK]"))
    raw.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    got = tokenize(Vocabulary(PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]"), 3), "CAFÉ")
    assert got.text == "CAFÉ"
    assert list(zip(got.starts, got.ends)) == [(0, 3), (3, 4)]
    assert any("normalises" in note for note in got.notes)


# ---- special tokens typed by a person


def test_special_text_is_the_special_token_or_plain_pieces(byte_level):
    text = "say <|end|> now"
    on, off = (tokenize(byte_level, text, parse_special=p) for p in (True, False))
    assert on.ids.count(0) == 1 and off.ids.count(0) == 0
    assert b"".join(on.pieces) == b"".join(off.pieces) == text.encode()
    assert on.text == off.text == text


# ---- BOS


def bos_vocabulary(add_bos):
    return Vocabulary(
        tiny_models.byte_level_tokenizer(bos="<|bos|>", add_bos=add_bos, chat_template=tiny_models.CHAT_TEMPLATE), head_width=300
    )


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize(("add_bos", "expected"), [(True, 1), (False, 0), (None, None)])
def test_raw_text_has_one_bos_or_none(by_itself, add_bos, expected):
    vocabulary = bos_vocabulary(by_itself)
    bos = vocabulary.tokenizer.bos_token_id
    got = tokenize(vocabulary, "hello", add_bos=add_bos)
    assert got.ids.count(bos) == (int(by_itself) if expected is None else expected)
    assert got.text == "hello"
    assert any("was added before the prompt" in n for n in got.notes) == (bos in got.ids)


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_chat_has_exactly_one_bos(by_itself):
    vocabulary = bos_vocabulary(by_itself)
    got = tokenize_chat(vocabulary, [{"role": "user", "content": "good morning"}])
    assert got.ids.count(vocabulary.tokenizer.bos_token_id) == 1
    assert got.ids[0] == vocabulary.tokenizer.bos_token_id


@pytest.mark.parametrize("add_bos", [True, None])
def test_a_bos_typed_by_hand_is_not_doubled(add_bos):
    vocabulary = bos_vocabulary(True)
    got = tokenize(vocabulary, "<|bos|>hello", add_bos=add_bos)
    assert got.ids.count(vocabulary.tokenizer.bos_token_id) == 1
    assert any("no second one" in n for n in got.notes)


def test_a_bos_that_comes_first_has_no_width():
    got = tokenize(bos_vocabulary(True), "hello")
    assert (got.starts[0], got.ends[0]) == (0, 0)
    assert got.starts[1] == 0


def test_ids_are_taken_as_they_are():
    assert tokenize(bos_vocabulary(True), [9, 10]).ids == (9, 10)


def test_a_bos_that_the_tokenizer_lacks_cannot_be_asked_for(byte_level):
    with pytest.raises(InputError, match="no beginning-of-sequence token"):
        tokenize(byte_level, "hello", add_bos=True)


def test_the_completion_gets_no_bos():
    vocabulary = bos_vocabulary(True)
    got = tokenize(vocabulary, "hello", " world")
    assert got.ids.count(vocabulary.tokenizer.bos_token_id) == 1 and got.boundary < len(got)


def test_an_empty_prompt_with_a_completion():
    with_bos = tokenize(bos_vocabulary(True), "", "yes")
    assert with_bos.boundary == 1 and with_bos.text == "yes"
    without = tokenize(bos_vocabulary(False), "", "yes")
    assert without.boundary == 0 and without.text == "yes"


@pytest.mark.parametrize("add_bos", [True, False])
def test_the_first_word_is_scored_only_after_a_bos(add_bos):
    """A GPT-2-like model whose BOS is its end of sequence."""
    tokenizer = tiny_models.byte_level_tokenizer(bos="<|end|>")
    report = tiny_models.inspector(tiny_models.gpt2(), tokenizer).inspect("Dogs bark", add_bos=add_bos)
    scored = report.tokens["raw_logprob"].notna().tolist()
    first = 1 if add_bos else 0
    assert report.tokens["token"][first] == "D"
    assert scored[first] == add_bos
    assert any("was added before the prompt" in n for n in report.notes) == add_bos


def test_an_empty_prompt_is_refused_with_a_way_out(tiny_llama):
    with pytest.raises(InputError, match="the prompt is empty"):
        tiny_llama.inspect("")
    report = tiny_llama.inspect("", completion="yes")
    assert report.tokens["source"].tolist()[0] == "completion" and report.tokens["score"].isna()[0]


# ---- the border between prompt and completion


def test_a_border_inside_a_token_is_noted(byte_level):
    whole = encode_plain(byte_level, " cat")
    got = tokenize(byte_level, "the c", "at")
    assert got.ids == (*encode_plain(byte_level, "the c"), *encode_plain(byte_level, "at"))
    assert len(whole) == 1 and whole[0] not in got.ids
    assert any("tokenised separately" in n for n in got.notes)


def test_a_border_between_tokens_is_not_noted(byte_level):
    got = tokenize(byte_level, "the", " cat")
    assert got.notes == () and got.text == "the cat"


def test_an_empty_completion_is_none(byte_level):
    assert tokenize(byte_level, "the", "") == tokenize(byte_level, "the")
    assert tokenize(byte_level, "the", []) == tokenize(byte_level, "the")


def test_the_spans_of_a_completion_go_on(byte_level):
    got = tokenize(byte_level, "the", " cat")
    assert (got.starts[got.boundary], got.ends[-1]) == (3, 7)


# ---- wrong input


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff"])
def test_a_lone_surrogate_is_refused_where_it_stands(text, byte_level):
    with pytest.raises(InputError, match=rf"prompt holds a lone surrogate at character {len(text) // 2}"):
        tokenize(byte_level, text)
    with pytest.raises(InputError, match="completion holds a lone surrogate"):
        tokenize(byte_level, "a", text)


def test_a_lone_surrogate_in_a_chat_is_refused():
    with pytest.raises(InputError, match="lone surrogate"):
        tokenize_chat(bos_vocabulary(False), [{"role": "user", "content": "\ud800"}])


@pytest.mark.parametrize(("ids", "message"), [
    ([320], r"prompt must be token ids in \[0, 319\], got 320 at place 1"),
    ([1, -1], "got -1 at place 2"),
    ([1.0], "prompt must be whole numbers, got 1.0 at place 1"),
    ([True], "whole number"),
    (["1"], "whole number"),
    ([None], "whole number"),
])  # fmt: skip
def test_a_wrong_id_is_named(ids, message, byte_level):
    with pytest.raises(InputError, match=message):
        tokenize(byte_level, ids)


@pytest.mark.parametrize("prompt", [5, 3.2, object(), b"bytes"])
def test_what_is_neither_text_nor_ids_is_refused(prompt, byte_level):
    with pytest.raises(InputError, match="prompt"):
        tokenize(byte_level, prompt)


# ---- chat


def test_a_chat_is_the_models_own_template():
    got = tokenize_chat(bos_vocabulary(False), [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    assert got.text == "<|bos|><|user|>hi<|end|><|assistant|>ho<|end|><|assistant|>"
    assert got.boundary == len(got)


def test_the_generation_prompt_can_be_left_out():
    got = tokenize_chat(bos_vocabulary(False), [{"role": "user", "content": "hi"}], add_generation_prompt=False)
    assert got.text == "<|bos|><|user|>hi<|end|>"


def test_a_completion_follows_a_chat():
    got = tokenize_chat(bos_vocabulary(False), [{"role": "user", "content": "hi"}], "ho")
    assert got.text.endswith("<|assistant|>ho") and got.boundary == len(got) - len(encode_plain(bos_vocabulary(False), "ho"))


def test_template_markers_are_penalised_like_any_seen_token():
    """repetition_penalty lowers what the prompt holds, the turn's end included."""
    inspector = tiny_models.inspector(
        tiny_models.llama(), tiny_models.byte_level_tokenizer(bos="<|bos|>", chat_template=tiny_models.CHAT_TEMPLATE)
    )
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    report = inspector.inspect(chat=chat, token_ids=[0], top_n=0, params=SamplingParams(repetition_penalty=1.3))
    row = report.alternatives.query("token_id == 0").iloc[-1]
    assert row["processed_logit"] < row["raw_logit"]


@pytest.mark.parametrize(("messages", "message"), [
    ([], "at least one message"),
    (["hi"], "chat message 0 must be an object with 'role' and 'content'"),
    ([{"role": "user"}], "chat message 0"),
    ([{"role": "user", "content": 5}], "chat message 0: role and content must be strings"),
    ([{"role": "user", "content": None}], "must be strings"),
])  # fmt: skip
def test_a_wrong_chat_is_named(messages, message):
    with pytest.raises(InputError, match=message):
        tokenize_chat(bos_vocabulary(False), messages)


def test_a_model_without_a_template_says_so(byte_level):
    with pytest.raises(InputError, match="no chat template"):
        tokenize_chat(byte_level, [{"role": "user", "content": "hi"}])


def test_a_template_that_refuses_is_quoted():
    tokenizer = tiny_models.byte_level_tokenizer(chat_template="{{ raise_exception('only users speak') }}")
    with pytest.raises(InputError, match="refuses this conversation: only users speak"):
        tokenize_chat(Vocabulary(tokenizer, 300), [{"role": "system", "content": "hi"}])


def test_prompt_or_chat_not_both(tiny_llama):
    with pytest.raises(InputError, match="got neither"):
        tiny_llama.inspect()
    with pytest.raises(InputError, match="got both"):
        tiny_llama.inspect("a", chat=[{"role": "user", "content": "hi"}])


@pytest.mark.real
def test_the_embedded_models_chat_template(embedded):
    report = embedded.inspect(chat=[{"role": "user", "content": "Hi"}])
    assert report.text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert embedded.inspect("Hi").run["prompt_ids"] == embedded.loaded.vocabulary.tokenizer.encode("Hi", add_special_tokens=False)


def test_an_empty_prompt_leaves_the_first_token_of_the_completion_unscored_with_a_note(tiny_llama):
    report = tiny_llama.inspect("", completion="the cat")
    assert report.tokens["raw_logprob"].isna().tolist() == [True] + [False] * (len(report.tokens) - 1)
    assert any("the prompt is empty" in note for note in report.notes)
