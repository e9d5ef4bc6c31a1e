"""The real page in a real browser, against the Python API and the tokenizer."""

import csv

import numpy as np
import pandas as pd
import pytest
from driving import copied_text, download, heatmap_text, inspect, table_rows, token_count

from inspector import SamplingParams
from inspector.report import read_csv

pytestmark = [pytest.mark.browser, pytest.mark.real]

PLAIN = "The capital of France is Paris. Its river is the Seine."
WHITESPACE = "a \n\n  b\tc\n"
HOSTILE = (
    "<script>window.hit = 1</script></textarea>&lt;b&gt; <|im_start|> <img src=x onerror=window.hit=1> "
    "\"double\" 'single' `tick` ${1+1} {{value}} \u202eright\u202c zero\u200bwidth\u200djoin nul\u0000end \\n"
)


@pytest.mark.essential
def test_as_many_tokens_as_the_tokenizer_gives(page, embedded):
    inspect(page, PLAIN)
    assert token_count(page) == len(embedded.loaded.vocabulary.tokenizer(PLAIN)["input_ids"])
    assert heatmap_text(page) == PLAIN


@pytest.mark.essential
def test_downloaded_csv_equals_the_python_api(page, embedded, tmp_path):
    inspect(page, PLAIN)
    download(page, "download-tokens-csv", tmp_path / "tokens.csv")
    expected = embedded.inspect(PLAIN)
    got = read_csv(tmp_path / "tokens.csv")
    pd.testing.assert_frame_equal(got, expected.tokens, rtol=0, atol=1e-4)
    with (tmp_path / "tokens.csv").open(newline="", encoding="utf-8") as file:
        assert [row["token"] for row in csv.DictReader(file)] == expected.tokens["token"].tolist()


@pytest.mark.parametrize("text", [WHITESPACE, "An owl 🦉 drinks 水…", HOSTILE], ids=["whitespace", "split characters", "hostile"])
def test_copying_gives_the_original_string(page, text):
    inspect(page, text)
    assert copied_text(page) == text


def test_hostile_text_is_shown_as_text_and_runs_nothing(page, embedded):
    inspect(page, HOSTILE)
    assert heatmap_text(page) == HOSTILE
    assert page.locator("#heatmap .li-text script, #heatmap .li-text img").count() == 0
    for i in range(token_count(page)):
        page.hover(f"#heatmap [data-i='{i}']", force=True)
    page.click("#heatmap [data-i='1']")
    table_rows(page)
    page.get_by_role("tab", name="Tokens").click()
    page.locator("#tokens").get_by_text("script", exact=True).first.wait_for()
    assert page.evaluate("window.hit") is None


def test_special_token_typed_as_text_is_marked(page, embedded):
    inspect(page, "say <|im_end|> now")
    marked = page.locator("#heatmap .li-special").all_text_contents()
    assert marked == ["<|im_end|>"]


def test_split_character_is_shown_by_its_bytes(page, embedded):
    inspect(page, "x🦉")
    pieces = [embedded.loaded.vocabulary.bytes_of(i) for i in embedded.loaded.vocabulary.tokenizer("x🦉")["input_ids"]]
    shown = page.locator("#heatmap .li-split [data-i]").evaluate_all("e => e.map(x => x.dataset.name)")
    assert " ".join(shown) == b"".join(pieces[1:]).hex(" ") == "🦉".encode().hex(" ")
    assert page.locator("#heatmap .li-split .li-whole").all_text_contents() == ["🦉"]


def test_whitespace_is_visible(page):
    inspect(page, WHITESPACE)
    marks = [page.locator(f"#heatmap .li-text .li-{kind}").count() for kind in ("sp", "nl", "tab")]
    assert marks == [WHITESPACE.count(" "), WHITESPACE.count("\n"), WHITESPACE.count("\t")]


def test_first_token_is_unscored_and_cut_tokens_have_a_state_of_their_own(page, embedded):
    page.fill("#top_p input", "0.8")
    page.locator("#mode").get_by_label("processed logprobs").check(force=True)
    inspect(page, PLAIN)
    states = page.locator("#heatmap [data-i]").evaluate_all("e => e.map(x => x.dataset.state)")
    tokens = embedded.inspect(PLAIN, params=SamplingParams(top_p=0.8)).tokens
    assert states[0] == "unscored"
    assert [s == "cut" for s in states] == (tokens["cut_by"] != "").tolist()
    assert "cut" in states and "even" in states


def test_changing_the_mode_runs_nothing(page, embedded):
    page.fill("#temperature input", "0.5")
    inspect(page, PLAIN)
    before = page.inner_text("#run")
    page.locator("#mode").get_by_label("processed logits").check(force=True)
    page.wait_for_selector("#heatmap .li-legend-title:has-text('processed logit')")
    assert page.inner_text("#run") == before  # it holds the seconds that the run took
    page.hover("#heatmap [data-i='4']")
    expected = embedded.inspect(PLAIN, params=SamplingParams(temperature=0.5)).tokens["processed_logit"][4]
    shown = float(page.locator("body > .li-card tr").nth(1).locator("td").nth(1).inner_text().replace("−", "-"))
    assert shown == pytest.approx(expected, abs=1e-3)


def test_pinned_token_lists_the_alternatives(page, embedded):
    inspect(page, PLAIN)
    page.click("#heatmap [data-i='5']")
    rows = table_rows(page)
    table = embedded.inspect(PLAIN).alternatives
    expected = table[(table["sequence"] == 0) & (table["position"] == 5)]
    assert [int(r[2]) for r in rows] == expected["token_id"].tolist()
    assert np.allclose([float(r[4].replace("−", "-")) for r in rows], expected["raw_logprob"], atol=2e-4)
    assert page.locator("#alternatives tr.li-own").count() == 1


def test_keyboard_walks_pins_and_closes(page):
    inspect(page, PLAIN)
    page.focus("#heatmap .li-text")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.locator("#heatmap .li-active").get_attribute("data-i") == "1"
    page.keyboard.press("Enter")
    page.wait_for_selector("#pinned h3:has-text('Prompt, position 1:')")
    assert page.locator("#heatmap .li-pinned").get_attribute("data-i") == "1"
    page.keyboard.press("Escape")
    page.wait_for_selector("#pinned .li-pin-hint")
    assert page.locator("#heatmap .li-pinned").count() == 0


def test_colour_by_every_column(page):
    page.fill("#top_k input", "5")
    inspect(page, PLAIN)
    titles = set()
    for value in page.locator("#heatmap [aria-label='Colour by'] option").evaluate_all("o => o.map(x => x.value)"):
        page.select_option("#heatmap [aria-label='Colour by']", value)
        titles.add(page.inner_text("#heatmap .li-legend-title"))
        assert page.locator("#heatmap [data-i='0']").get_attribute("data-state") == "unscored"
    assert len(titles) == 7


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("top_p", "1.5", "top_p must be in (0, 1], got 1.5"),
        ("temperature", "-1", "temperature must be in [0, inf), got -1"),
        ("presence_penalty", "3", "presence_penalty must be in [-2, 2], got 3"),
    ],
)
def test_parameter_out_of_range_is_told_at_once(page, field, value, message):
    page.fill(f"#{field} input", value)
    page.wait_for_selector(f"#sampler-message [role=alert]:has-text('{field}')")
    assert page.inner_text("#sampler-message") == message


def test_error_keeps_the_inputs_and_the_result(page):
    inspect(page, PLAIN)
    page.fill("#prompt textarea", "another text")
    page.fill("#seed textarea", "9223372036854775808")
    page.click("#inspect")
    page.wait_for_selector("#status [role=alert]")
    assert page.inner_text("#status") == "seed must be in [0, 9223372036854775807], got 9223372036854775808"
    assert page.input_value("#prompt textarea") == "another text"
    assert heatmap_text(page) == PLAIN
    page.wait_for_selector("#inspect:not([disabled])")


def test_reset_makes_every_parameter_neutral(page):
    page.fill("#temperature input", "0.7")
    page.fill("#top_k input", "40")
    page.wait_for_selector("#sampler-message b:has-text('top_k')")
    assert page.locator("#sampler-message b").all_text_contents() == ["temperature", "top_k"]
    page.click("#reset")
    page.wait_for_selector("#sampler-message:has-text('All neutral')")
    assert (page.input_value("#temperature input"), page.input_value("#top_k input")) == ("1", "0")


def test_cancel_keeps_what_was_sampled(page):
    page.fill("#prompt textarea", PLAIN)
    page.fill("#continuations input", "1")
    page.fill("#max_new_tokens input", "2000")
    page.fill("#seed textarea", "7")  # a drawn seed might end at once
    page.click("#inspect")
    page.wait_for_selector("#live .li-growing .li-token")
    page.click("#cancel")
    page.wait_for_selector("#status:has-text('Cancelled')", timeout=10_000)
    page.wait_for_selector("#heatmap .li-section >> nth=1")
    assert 0 < token_count(page, 1) < 2000
    page.wait_for_selector("#inspect:not([disabled])")
    page.fill("#continuations input", "0")
    inspect(page, "A new text.")
    assert heatmap_text(page) == "A new text."


def test_continuations_equal_the_python_api(page, embedded):
    page.fill("#continuations input", "2")
    page.fill("#max_new_tokens input", "6")
    page.fill("#seed textarea", "7")
    inspect(page, PLAIN)
    texts = embedded.inspect(PLAIN, continuations=2, max_new_tokens=6, seed=7).texts
    assert [heatmap_text(page, i) for i in range(3)] == list(texts)


def test_chat_goes_through_the_template(page, embedded):
    page.get_by_label("Chat", exact=True).check(force=True)
    page.fill("#chat textarea", "What is 2 + 2?")
    page.get_by_label("Role").select_option("user")
    inspect(page)
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    ids = embedded.loaded.vocabulary.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert token_count(page) == len(ids)


def test_prompt_and_completion_are_two_sections(page, embedded):
    page.get_by_label("Prompt + completion").check(force=True)
    page.fill("#completion textarea", " Berlin.")
    inspect(page, "The capital of France is")
    tokenizer = embedded.loaded.vocabulary.tokenizer
    assert [token_count(page, i) for i in range(2)] == [len(tokenizer(t)["input_ids"]) for t in ("The capital of France is", " Berlin.")]
    assert [heatmap_text(page, i) for i in range(2)] == ["The capital of France is", " Berlin."]


def test_sessions_do_not_see_each_other(page, chromium, app_url):
    inspect(page, PLAIN)
    other = chromium.new_context().new_page()
    other.goto(app_url)
    other.wait_for_selector("#empty .li-empty")
    assert other.locator("#heatmap [data-i]").count() == 0
    other.context.close()


def test_a_model_that_cannot_be_loaded_leaves_the_old_one(page):
    page.click("#model button")
    page.fill("#model-name textarea", "missing.gguf")
    page.click("#model-load")
    page.wait_for_selector("#model-status [role=alert]")
    assert "there is no GGUF file at missing.gguf" in page.inner_text("#model-status")
    inspect(page, PLAIN)
    assert heatmap_text(page) == PLAIN


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_window(page, width):
    """Nor after the window was wider, which leaves wide plots behind."""

    def overflow() -> int:
        return page.evaluate("document.documentElement.scrollWidth - innerWidth")

    inspect(page, PLAIN + " " + "x" * 120)
    page.click("#heatmap [data-i='5']")
    table_rows(page)
    page.set_viewport_size({"width": width, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1440, "height": 844})
    for tab in ("Tokens", "Notes", "Guide", "Download", "Plots"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(300)
        assert overflow() <= 0, tab


def test_copying_over_two_sections_takes_no_headings(page):
    page.fill("#continuations input", "1")
    page.fill("#max_new_tokens input", "4")
    inspect(page, PLAIN)
    copied = page.evaluate("""() => {
        const [first, second] = document.querySelectorAll('#heatmap .li-text');
        getSelection().setBaseAndExtent(first, 0, second, second.childNodes.length);
        const data = new DataTransfer();
        second.dispatchEvent(new ClipboardEvent('copy', {clipboardData: data, bubbles: true, cancelable: true}));
        return data.getData('text/plain');
    }""")
    assert copied == heatmap_text(page, 0) + heatmap_text(page, 1)
