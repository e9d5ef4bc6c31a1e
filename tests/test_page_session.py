"""The results of a visitor's session: what is shown, what stays pinned, live variants."""

import pytest

from inspector import SamplingParams
from inspector.page.session import MOST, Session

PARAMS = SamplingParams(top_k=2)


@pytest.fixture
def held(tiny_llama) -> Session:
    session = Session()
    session.add(tiny_llama.inspect("a fox"))
    return session


def test_a_live_variant_leaves_the_result_as_it_is(held, tiny_llama):
    original = held.current
    held.pinned = (0, 1)
    for params, name in ((PARAMS, "live (top_k)"), (SamplingParams(top_p=0.5), "live (top_p)"), (SamplingParams(), "live (neutral)")):
        held.vary(held.shown, tiny_llama.rescore(held.current.report, params))
        assert (held.current.name, held.current.parent, held.pinned) == (name, 1, (0, 1))
    assert held.results[0] is original
    assert len(held.results) == 2
    held.show(1)
    held.vary(1, tiny_llama.rescore(original.report, PARAMS))  # again from the result itself
    assert (held.shown, len(held.results), held.current.name) == (2, 2, "live (top_k)")


def test_a_named_live_variant_keeps_its_name(held, tiny_llama):
    held.vary(1, tiny_llama.rescore(held.current.report, PARAMS))
    held.rename("mine")
    held.vary(2, tiny_llama.rescore(held.current.report, SamplingParams(top_p=0.5)))
    assert held.current.name == "mine"


def test_a_live_variant_of_what_is_not_shown_or_gone(held, tiny_llama):
    varied = tiny_llama.rescore(held.current.report, PARAMS)
    held.add(tiny_llama.inspect("another"))
    held.vary(1, varied)
    assert held.shown == 2  # scores that come late do not take the reader away
    assert [r.number for r in held.results] == [1, 2, 3]
    held.show(3)
    held.remove()
    held.vary(3, varied)
    assert [r.number for r in held.results] == [1, 2]


def test_the_pin_stays_on_the_same_tokens_only(held, tiny_llama):
    held.pinned = (0, 1)
    held.add(tiny_llama.inspect("a fox", params=PARAMS))
    assert held.pinned == (0, 1)
    held.remove()
    assert held.pinned == (0, 1)
    held.add(tiny_llama.inspect("a dog"))
    assert held.pinned is None


def test_the_oldest_results_go(held, tiny_llama):
    report = held.current.report
    for _ in range(MOST):
        held.add(report)
    assert [r.number for r in held.results] == list(range(2, MOST + 2))
    held.vary(2, report)  # of the oldest: it stays, and the next goes
    assert [r.number for r in held.results] == [2, *range(4, MOST + 3)]
