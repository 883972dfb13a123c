from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from gymshm import layout, segment, space_json
from gymshm.plan import Field
from gymshm.spaces import outline

SPACE = gs.Dict(
    [
        ("image", gs.Box(0, 255, (4, 4, 3), np.uint8)),
        ("speed", gs.Box(np.array([-1, -np.inf]), np.array([1, 2.5]), dtype=np.float64)),
        ("nested", gs.Tuple((gs.Discrete(5), gs.Discrete(3, start=-1), gs.Text(8)))),
        ("one", gs.OneOf([gs.MultiDiscrete([2, 3]), gs.MultiBinary(4)])),
        ("big", gs.Box(0, 1, (2,), np.dtype(">f4"))),
        ("none", gs.Box(0, 1, (0,), np.float32)),
    ]
)


def test_each_array_is_one_row_in_words():
    header = gymshm.segment_of(gymshm.create_shared_memory(SPACE, n=2)).header
    told = [(entry.path, entry.space, entry.dtype, entry.shape, entry.nbytes) for entry in layout.entries(header)]
    assert told == [
        ("values['image']", "Box(0, 255)", "uint8", (2, 4, 4, 3), 96),
        ("values['speed']", "Box(-inf..-1, 1..2.5)", "float64", (2, 2), 32),
        ("values['nested'][0]", "Discrete(5)", "int64", (2,), 16),
        ("values['nested'][1]", "Discrete(3, start=-1)", "int64", (2,), 16),
        ("values['nested'][2]", "Text(1-8)", "int32", (2, 8), 64),
        ("values['one'].index", "OneOf", "int64", (2,), 16),
        ("values['one'][0]", "MultiDiscrete", "int64", (2, 2), 32),
        ("values['one'][1]", "MultiBinary", "int8", (2, 4), 8),
        ("values['big']", "Box(0, 1)", ">f4", (2, 2), 16),
        ("values['none']", "Box(-, -)", "float32", (2, 0), 0),
    ]


def test_offsets_count_from_the_start_of_the_segment():
    memory = gymshm.create_shared_memory(SPACE, n=2)
    made = gymshm.segment_of(memory)
    for entry, leaf in zip(layout.entries(made.header), gymshm.views.leaves(memory), strict=True):
        leaf.view.reshape(-1).view(np.uint8)[:] = 7
        with open(f"/dev/shm/{made.name}", "rb") as file:
            data = file.read()
        assert data[entry.offset : entry.offset + entry.nbytes] == b"\7" * entry.nbytes
        leaf.view.reshape(-1).view(np.uint8)[:] = 0


def test_every_field_has_its_rows():
    fields = [Field("actions", (3,), outline(gs.Discrete(2))), Field("rewards", (2, 3), outline(gs.Box(0, 1, ())))]
    told = [(entry.path, entry.shape) for entry in layout.entries(segment.create(fields, 3).header)]
    assert told == [("actions", (3,)), ("rewards", (2, 3))]


def test_a_segment_without_arrays_has_no_rows():
    made = segment.create([Field("values", (3,), outline(gs.Dict({})))], 3)
    assert list(layout.entries(made.header)) == []


@pytest.mark.parametrize("n", [0, 1])
def test_bounds_of_a_huge_value_are_not_looked_at(n, monkeypatch):
    monkeypatch.setattr(space_json, "_LARGEST", 10)
    header = gymshm.segment_of(gymshm.create_shared_memory(gs.Box(0, 1, (11,), np.uint8), n=n)).header
    assert [entry.space for entry in layout.entries(header)] == ["Box"]


def test_parameters_that_fit_no_space_leave_its_name(monkeypatch):
    def refuse(*args: object) -> None:
        raise ValueError("forged")

    monkeypatch.setattr(space_json, "discrete", refuse)
    header = gymshm.segment_of(gymshm.create_shared_memory(gs.Discrete(3))).header
    assert [entry.space for entry in layout.entries(header)] == ["Discrete"]
