"""What guards are asked, with neutral answers to whatever a test does not give."""

import pytest

from gtrun.guards import Question
from gtrun.guards.verdict import BoardView, FleetView
from gtrun.quota import QuotaFile
from gtrun.systemd.units import UnitState


@pytest.fixture
def asked():
    """Make a question about issue 1 on agent `me`."""

    def make(**given):
        neutral = {
            "issue": "1", "agent": "me", "environment": {}, "terminal_labels": (), "terminal_glyphs": (), "now": 1000.0,
            "board": BoardView, "quota": QuotaFile, "units": list, "fleet": lambda: FleetView({}, {}),
        }  # fmt: skip
        return Question(**neutral | given)

    return make


@pytest.fixture
def unit():
    """Make a row of ListUnitsByPatterns."""

    def make(name, active, job=0):
        return UnitState(name=name, description="", load="loaded", active=active, sub="x", path="/", job=job)

    return make
