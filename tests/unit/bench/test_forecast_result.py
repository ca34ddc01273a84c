"""The forecast's bench tells how near it came, and whether benching a node was right."""

from __future__ import annotations

import json

import pytest

from bench import page
from bench.forecast.grid import LINKS_MBIT, MODELS, SPEEDS, chains
from bench.forecast.result import CELLS_MIN, Benched, Cell, missed, result

RIGHT = Benched(2.0, "would make it 0.2x: link 2 Mbit/s", 100.0, 20.0)


def cell(predicted_s: float, measured_s: float = 0.1) -> Cell:
    return Cell("1:1:1", "fast", "small", ("ada", "bob"), predicted_s, measured_s, 0.2)


def test_the_grid_is_as_large_as_promised_and_no_quota_exceeds_the_machine() -> None:
    assert len(chains()) * len(MODELS) >= CELLS_MIN
    assert len({(each.speeds.name, each.link) for each in chains()}) == len(SPEEDS) * len(LINKS_MBIT)
    assert all(sum(each.cpus.values()) < 2 for each in SPEEDS)


def test_a_forecast_is_within_a_tenth_of_what_was_measured_either_way() -> None:
    cells = [cell(0.109), cell(0.091), cell(0.112), cell(0.07)]
    told = result(cells, RIGHT)
    assert told["within_10_percent"] == 0.5
    assert told["worst"]["error"] == pytest.approx(-0.3)
    assert told["cells"][0]["speed_up"] == pytest.approx(0.2 / 0.109, abs=1e-3)
    assert json.loads(json.dumps(told))["cells"][3]["members"] == ["ada", "bob"]
    assert len(missed(told | {"quick": True})) == 1
    assert len(missed(told | {"quick": False})) == 2  # too few cells, too


@pytest.mark.parametrize(
    ("benched", "right"),
    [
        (RIGHT, True),
        (Benched(2.0, "", 100.0, 20.0), False),
        (Benched(2.0, "link 2 Mbit/s", 20.0, 100.0), False),
    ],
)
def test_benching_was_right_when_it_was_done_and_the_others_were_faster_so(
    benched: Benched, right: bool
) -> None:
    told = result([cell(0.1)] * CELLS_MIN, benched)
    assert told["benched_right"] is right
    assert bool(missed(told)) is not right


def test_the_page_tells_every_cell_and_the_benched_node() -> None:
    text = "\n".join(page.of_forecast(result([cell(0.109), cell(0.07)], RIGHT)))
    assert "| 1:1:1 | fast | small | ada, bob | 109.0 ms | 100.0 ms | +9% |" in text
    assert "50% of 2 cells" in text
    assert "would make it 0.2x: link 2 Mbit/s" in text
