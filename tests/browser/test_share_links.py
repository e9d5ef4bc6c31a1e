"""Share links: what they hold, what they refuse, and that the page reads them."""

import random

import pytest

from inspector import InputError
from inspector.page.form import SamplerForm, TextForm
from inspector.page.share import decode, encode


def test_link_holds_the_whole_form():
    text = TextForm(kind="chat", chat='[{"role": "user", "content": "é 🦉 <b>"}]', seed="9007199254740993", parse_special=False)
    sampler = SamplerForm(temperature=0.7, stop="\\n", ignore_eos=True)
    assert decode(encode(text, sampler, "processed_logits", "embedded")) == (text, sampler, "processed_logits", "embedded")


@pytest.mark.parametrize("model", ["/home/someone/model", "./model", "~/model", "C:/models/x.gguf", "owner/model.gguf"])
def test_paths_are_nobody_elses_business(model):
    assert decode(encode(TextForm(), SamplerForm(), "raw_logits", model))[3] is None


def test_a_long_text_is_refused_with_both_numbers():
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
    with pytest.raises(InputError, match=r"the link would have [0-9,]+ characters, and programs keep at most 6,000 whole"):
        encode(TextForm(prompt=noise), SamplerForm(), "raw_logits", "embedded")


@pytest.mark.parametrize("damage", ["inspect=", "inspect=!!!", "inspect=AAAA", "cut"])
def test_a_damaged_link_is_told(damage):
    code = encode(TextForm(prompt="x" * 50), SamplerForm(), "raw_logits", "embedded")
    with pytest.raises(InputError, match="damaged"):
        decode(code[: len(code) // 2] if damage == "cut" else damage)


@pytest.mark.browser
@pytest.mark.real
def test_share_link_restores_the_form(page, chromium, watched):
    page.fill("#prompt textarea", 'A "quoted" <text>\n🦉')
    page.fill("#top_k input", "40")
    page.fill("#seed textarea", "9007199254740993")
    page.locator("#mode").get_by_label("processed logits").check(force=True)
    page.click("#share button")
    page.click("#share-button")
    page.wait_for_function("document.querySelector('#share-link textarea, #share-link input').value.includes('#inspect=')")
    link = page.locator("#share-link textarea, #share-link input").input_value()
    other = chromium.new_context().new_page()
    other.goto(link)
    other.wait_for_function("document.querySelector('#prompt textarea')?.value")
    assert other.input_value("#prompt textarea") == 'A "quoted" <text>\n🦉'
    assert other.input_value("#top_k input[type=number]") == "40"
    assert other.input_value("#seed textarea") == "9007199254740993"
    assert other.locator("#mode").get_by_label("processed logits").is_checked()
    other.context.close()


@pytest.mark.browser
@pytest.mark.real
def test_a_damaged_share_link_is_told(chromium, app_url):
    other = chromium.new_context().new_page()
    other.goto(app_url + "/#inspect=abcd")
    other.get_by_text("this share link is damaged or cut short").first.wait_for()
    other.context.close()
