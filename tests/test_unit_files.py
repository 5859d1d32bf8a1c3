"""What a shipped unit executes."""

import sys
from pathlib import Path

import pytest

from gtrun import unit_files
from gtrun.errors import LaunchFailed
from gtrun.release.installation import Release

UNITS = Path(__file__).parent.parent / "units"
TEXT = "[Service]\nExecStart=gtrun reconcile\n"


def test_every_shipped_unit_executes_gtrun_and_begins_by_itself():
    assert [file.name for file in unit_files.shipped()] == sorted(path.name for path in UNITS.iterdir())
    for file in unit_files.shipped():
        assert "\nExecStart=gtrun " in file.read_text() or file.suffix != ".service"


def test_an_installation_by_pip_is_named_by_its_python(monkeypatch):
    monkeypatch.setattr("gtrun.release.installation.this_folder", lambda: None)
    monkeypatch.setattr(sys, "executable", "/opt/gtrun/bin/python")
    assert unit_files.rendered(TEXT).endswith("\nExecStart=/opt/gtrun/bin/python -I -m gtrun reconcile\n")
    monkeypatch.setattr(sys, "executable", "/home/a b/bin/python")
    with pytest.raises(LaunchFailed, match="cannot stand on a unit's command line"):
        unit_files.rendered(TEXT)


def test_of_releases_it_is_the_one_that_is_current_then(monkeypatch):
    folder = Path("/opt/gtrun/releases/abc")
    monkeypatch.setattr("gtrun.release.installation.this_folder", lambda: folder)
    release = Release(folder, commit="abc", checkout="/c", environment="/e", python="/p")
    monkeypatch.setattr("gtrun.release.installation.read", lambda _: release)
    assert unit_files.rendered(TEXT).endswith("\nExecStart=/opt/gtrun/bin/gtrun reconcile\n")
