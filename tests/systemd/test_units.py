"""The one definition of "live"."""

import pytest

from gtrun.systemd.units import UnitState, is_live, object_path


def unit(active, job=0, load="loaded"):
    return UnitState(name="task-1.service", description="", load=load, active=active, sub="", path="/", job=job)


@pytest.mark.parametrize("active", ["active", "activating", "deactivating", "reloading", "maintenance", "refreshing"])
@pytest.mark.parametrize("load", ["loaded", "bad-setting", "error"])
def test_whatever_is_not_over_is_live(active, load):
    assert is_live(unit(active, load=load))


@pytest.mark.parametrize("active", ["inactive", "failed"])
@pytest.mark.parametrize(("job", "live"), [(0, False), (7, True)])
def test_what_is_over_is_live_only_with_a_job(active, job, live):
    assert is_live(unit(active, job)) is live


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("task-1.service", "task_2d1_2eservice"),
        ("task-1-dup2.service", "task_2d1_2ddup2_2eservice"),
        ("task-a_2db.c.7.service", "task_2da_5f2db_2ec_2e7_2eservice"),
        ("1.service", "_31_2eservice"),
    ],
)
def test_the_object_of_a_unit(name, label):
    assert object_path(name) == f"/org/freedesktop/systemd1/unit/{label}"
