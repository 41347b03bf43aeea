"""Parts of the report: numbers by time do not depend on batches, scales, what Markdown escapes, shorter documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtx_cli.report.document import Document, Items, Lane, Mark, Paragraph, Section, Table
from rmqtx_cli.report.drawings import WIDTH, LinearScale, LogScale
from rmqtx_cli.report.one_pass import STEPS_MAX, STEPS_MS, TimeSteps
from rmqtx_cli.report.rendering import LIMITS, lane_text, rendered, shortened

NOW_MS = 1_800_000_000_000
_TIMES = st.lists(st.integers(NOW_MS - 40 * 86_400_000, NOW_MS), min_size=1, max_size=60)


@settings(max_examples=20)
@given(times=_TIMES, cut=st.integers(0, 60))
def test_steps_of_time_do_not_depend_on_batches(times: list[int], cut: int) -> None:
    counted = np.array(times, np.int64)
    values = np.arange(1, len(times) + 1)
    for combine, total in ((np.add, values.sum()), (np.maximum, values.max())):
        whole, parts = TimeSteps(NOW_MS, 1, combine), TimeSteps(NOW_MS, 1, combine)
        whole.add(0, counted, values)
        for piece in (slice(0, cut), slice(cut, None)):
            parts.add(0, counted[piece], values[piece])
        assert whole.of(0) == parts.of(0)
        found = [value for _, value in whole.of(0)]
        assert (sum(found) if combine is np.add else max(found)) == total
        bounds = whole.range_ms
        assert bounds is not None
        assert bounds[0] <= min(times) <= max(times) < bounds[1]
        assert (bounds[1] - bounds[0]) // whole.step_ms <= STEPS_MAX
        shorter = [step for step in STEPS_MS if step < whole.step_ms]
        assert not shorter or max(times) // shorter[-1] - min(times) // shorter[-1] >= STEPS_MAX


def test_an_impossible_time_is_counted_and_in_no_step() -> None:
    steps = TimeSteps(NOW_MS, 1, np.add)
    steps.add(0, np.array([0, -5, NOW_MS, NOW_MS + 3 * 86_400_000]), np.ones(4, np.int64))
    assert steps.impossible_count == 3
    assert [value for _, value in steps.of(0)] == [1]


def test_scales() -> None:
    linear = LinearScale(100, 300)
    assert [linear.at(value) for value in (100, 150, 300, 1_000, 0)] == [0, WIDTH / 4, WIDTH, WIDTH, 0]
    assert linear.values(3) == [100, 200, 300]
    assert LinearScale(5, 5).at(5) == WIDTH / 2
    ratios = LogScale(1, 10_000)
    assert [round(ratios.at(value)) for value in (0, 1, 100, 10_000)] == [0, 0, 500, 1_000]


def test_a_lane_as_text() -> None:
    text = lane_text(Lane("", "", [Mark(0, 0, 1, "half"), Mark(500, 250, 0.5, "half"), Mark(1_000, 0, 1, "half")]))
    assert len(text) == 64
    assert text[0] == text[-1] == "█"
    assert text[32:48] == "▄" * 16
    assert set(text[1:32]) == {" "}


@pytest.mark.parametrize("text", ["1. x", "- x", "# x", "+ x", "x\n- y", "a | b", "<b>", "&lt;", "[a](b)", "www.x.org"])
def test_text_is_not_markup_in_markdown(text: str) -> None:
    from markdown_it import MarkdownIt

    document = Document("T", [text], [Section("S", "s", [Paragraph(text), Items([text])])])
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(rendered(document, ".md").decode())
    plain = ["".join(child.content for child in token.children or ()) for token in tokens if token.type == "inline"]
    visible = text.replace("\n", "\\n")
    assert plain == ["T", visible, "S", visible, visible]


def test_a_shorter_document_states_what_is_left_out() -> None:
    rows = [[str(number)] for number in range(100)]
    inner = [Section(f"I{number}", f"i-{number}", [Paragraph("x")]) for number in range(5)]
    words = Section("Words", "words", [Table("W", [], rows)])
    document = Document("T", [], [Section("S", "s", [Table("A", [], rows), Items(["x"] * 100), *inner]), words])
    rows_max, sections_max = LIMITS[-1]
    first, last = shortened(document, rows_max, sections_max).sections
    table, items, shown, note = first.parts
    assert isinstance(table, Table)
    assert len(table.rows) == rows_max
    assert table.note.startswith("92 more rows")
    assert isinstance(items, Items)
    assert items.texts[-1] == "92 more"
    assert shown == inner[0]
    assert isinstance(note, Paragraph)
    assert note.text.startswith("4 more")
    assert last == words
