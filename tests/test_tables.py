"""Tables, and the reprs of a leaf, a segment, an attachment and a vector environment, which show the layout as one."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from environments import clock_envs
from gymshm.layout import entries
from gymshm.tables import html_table, printable, table

EVIL = "<script>alert('\"&')</script>"
HEADS = ["PATH", "SPACE", "DTYPE", "SHAPE", "OFFSET", "BYTES"]


class Cells(HTMLParser):
    """What a browser would show of a table: its caption, and its rows of texts."""

    def __init__(self, told: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.caption, self.rows = "", [[]]
        self._tag = ""
        self.feed(told)
        self.close()
        self.rows = [row for row in self.rows if row]

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)
        self._tag = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._tag == "caption":
            self.caption += data
        else:
            self.rows[-1][-1] += data


def layout_cells(header: Any) -> list[list[str]]:
    """The lines of a segment's layout, as texts."""
    return [[str(cell) for cell in entry.cells()] for entry in entries(header)]


# --- tables -----------------------------------------------------------------------------------------------------------


def test_numbers_stand_to_the_right():
    assert table(("A", "NUMBER"), [("x", 5), ("longer", 1234567)], right=["NUMBER"]) == (
        "A        NUMBER\nx             5\nlonger  1234567"
    )


def test_a_table_without_rows_has_its_heads():
    assert table(("A", "B"), []) == "A  B"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain ä", "plain ä"), ("\x1b[2J", r"'\x1b[2J'"), ("two\nlines", r"'two\nlines'")],
)
def test_a_terminal_takes_no_commands_from_a_table(text, shown):
    assert printable(text) == shown
    assert table(("A",), [(text,)]) == f"A\n{shown}"


def test_an_html_table_shows_what_it_was_given_and_never_obeys_it():
    cells = Cells(html_table(EVIL, ("A", EVIL), [(EVIL, 5)], right=["A"]))
    assert cells.caption == EVIL
    assert cells.rows == [["A", EVIL], [EVIL, "5"]]
    assert cells.tags == {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_numbers_stand_to_the_right_in_html_too():
    assert '<td style="text-align: right">5</td>' in html_table("", ("A", "B"), [("x", 5)], right=["B"])
    assert '<td style="text-align: left">x</td>' in html_table("", ("A", "B"), [("x", 5)], right=["B"])


# --- reprs ------------------------------------------------------------------------------------------------------------


def test_a_leaf_is_one_line_of_the_layout():
    memory = gymshm.create_shared_memory(gs.Dict([("a", gs.Discrete(3)), (EVIL, gs.Box(0, 1, (5,), np.float64))]), n=2)
    segment = gymshm.segment_of(memory)
    first, second = layout_cells(segment.header)
    assert second[0] == f"values[{EVIL!r}]"
    assert repr(memory[EVIL]) == (
        f"<gymshm leaf values[{EVIL!r}]: float64 (2, 5), 80 bytes at {second[4]} in {segment.name!r}>"
    )
    cells = Cells(memory[EVIL]._repr_html_())
    assert cells.rows == [HEADS, second]
    assert cells.caption == f"gymshm leaf in {segment.name}"
    assert Cells(memory["a"]._repr_html_()).rows == [HEADS, first]


def test_a_closed_leaf_is_shown_still():
    memory = gymshm.create_shared_memory(gs.Discrete(3), n=2)
    before = repr(memory), memory._repr_html_()
    gymshm.segment_of(memory).close()
    assert (repr(memory), memory._repr_html_()) == before


def test_a_segment_is_one_line_and_in_notebooks_the_whole_layout():
    memory = gymshm.create_shared_memory(gs.Dict({"a": gs.Text(4), EVIL: gs.Box(0, 1, (5,))}), n=2)
    segment = gymshm.segment_of(memory)
    assert repr(segment) == f"<gymshm.Segment {segment.name!r}: {segment.nbytes} bytes, n=2>"
    cells = Cells(segment._repr_html_())
    assert cells.caption == repr(segment)
    assert cells.rows == [HEADS, *layout_cells(segment.header)]
    assert "script" not in cells.tags
    segment.close()
    closed = Cells(segment._repr_html_())
    assert closed.caption == f"<gymshm.Segment {segment.name!r}: {segment.nbytes} bytes, n=2, closed>"
    assert closed.rows == cells.rows


def test_an_attachment_shows_the_whole_layout():
    memory = gymshm.create_shared_memory(gs.Dict({"a": gs.Text(4), EVIL: gs.Box(0, 1, (5,))}), n=2)
    with gymshm.attach(gymshm.segment_of(memory).name) as attached:
        first, *rest = repr(attached).splitlines()
        assert first == f"<gymshm.Attachment to {attached.segment!r}>"
        assert rest == table(HEADS, layout_cells(attached.segment.header), right=["OFFSET", "BYTES"]).splitlines()
        cells = Cells(attached._repr_html_())
        assert cells.caption == f"gymshm.Attachment to {attached.segment!r}"
        assert cells.rows == [HEADS, *layout_cells(attached.segment.header)]
        assert "script" not in cells.tags


def test_a_vector_environment_shows_the_whole_layout_and_in_one_line_what_gymnasium_shows():
    with_key = gs.Dict({EVIL: gs.Box(0, 1, (3,))})
    envs = clock_envs(2, observation_space=with_key, observe=lambda t: {EVIL: np.zeros(3, np.float32)})
    header = envs._segment.header
    shown = repr(envs), envs._repr_html_()
    assert str(envs) == "ShmVectorEnv(num_envs=2)"
    first, *rest = shown[0].splitlines()
    assert first == f"ShmVectorEnv(num_envs=2), <gymshm.Segment {envs.segment_name!r}: {header.nbytes} bytes, n=2>"
    assert rest == table(HEADS, layout_cells(header), right=["OFFSET", "BYTES"]).splitlines()
    assert rest[1].startswith(f"observations[{EVIL!r}]")
    cells = Cells(shown[1])
    assert cells.caption == first
    assert cells.rows == [HEADS, *layout_cells(header)]
    envs.close()
    assert (repr(envs), envs._repr_html_()) == shown


def test_one_that_did_not_come_about_is_shown_too():
    envs = gymshm.ShmVectorEnv.__new__(gymshm.ShmVectorEnv)
    envs.num_envs = 3
    assert repr(envs) == "ShmVectorEnv(num_envs=3)"
    assert Cells(envs._repr_html_()).caption == "ShmVectorEnv(num_envs=3)"


def test_columns_are_as_wide_as_what_stands_in_them():
    assert table(("A", "LONG", "N"), [("abc", 1, 20), ("d", "", 3)], right=("N",)) == (
        "A    LONG   N\nabc  1     20\nd           3"
    )


def test_a_text_can_t_play_tricks_with_the_terminal():
    assert printable("gymshm-1-ab") == "gymshm-1-ab"
    assert printable("a\33[2Jb\n") == r"'a\x1b[2Jb\n'"
    assert printable("\udcff") == r"'\udcff'"
