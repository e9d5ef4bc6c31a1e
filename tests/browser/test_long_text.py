"""A text of 8,000 tokens stays usable: the limits that the page promises."""

import pytest
from driving import token_count

pytestmark = [pytest.mark.browser, pytest.mark.real]

FIRST_PAINT = 1500  # ms from the data's arrival to the first frame with tokens
HOVER = 50  # ms from the pointer's arrival to the frame with the card


def measured(page, name: str) -> float:
    page.wait_for_function("name => performance.getEntriesByName(name).length", arg=name, timeout=60_000)
    return page.evaluate("name => performance.getEntriesByName(name)[0].duration", name)


def test_eight_thousand_tokens(page, embedded):
    words = "The lighthouse keeper counted every ship that passed, and wrote its name in a book. "
    ids = embedded.loaded.vocabulary.tokenizer(words * 600)["input_ids"][:8000]
    text = embedded.loaded.vocabulary.tokenizer.decode(ids)
    page.fill("#prompt textarea", text)
    page.click("#inspect")
    page.wait_for_selector("#status .li-done", timeout=300_000)
    assert measured(page, "heatmap first") < FIRST_PAINT
    measured(page, "heatmap")
    assert token_count(page) == len(embedded.loaded.vocabulary.tokenizer(text)["input_ids"])
    page.wait_for_timeout(3000)  # the plots are drawn after the heatmap
    hover = """async (i) => {
        const token = document.querySelector(`#heatmap [data-i='${i}']`);
        const began = performance.now();
        token.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        return [performance.now() - began, document.querySelector('body > .li-card').hidden];
    }"""
    times = []
    for i in (5, 100, 200, 300, 400):
        duration, hidden = page.evaluate(hover, i)
        assert not hidden
        times.append(duration)
    assert sorted(times)[len(times) // 2] < HOVER
    page.click("#heatmap [data-i='100']")
    page.wait_for_selector("#pinned h3:has-text('Token 100')", timeout=30_000)
