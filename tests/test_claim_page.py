"""docs/claim.md: each row of its tables is a scenario, and each scenario a row."""

import re
from pathlib import Path

import pytest

from harness.scenarios.test_claim_faults import FAULTS, NO_FAULTS

PAGE = (Path(__file__).parent.parent / "docs/claim.md").read_text()


@pytest.mark.parametrize(
    ("title", "scenarios"), [("What still allows two runs", FAULTS), ("What does not", NO_FAULTS)], ids=["two", "one"]
)
def test_every_row_is_a_scenario_and_every_scenario_a_row(title, scenarios):
    section = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)[1]
    assert re.findall(r"\| `(\w+)` \|$", section, re.MULTILINE) == [scenario.__name__ for scenario in scenarios]
