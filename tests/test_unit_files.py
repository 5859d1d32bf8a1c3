"""What a shipped unit executes."""

import re
import sys
from pathlib import Path

import pytest

from gtrun import unit_files
from gtrun.account import own
from gtrun.config import load
from gtrun.errors import LaunchFailed
from gtrun.release.installation import Release
from gtrun.unit_files import Terms

UNITS = Path(__file__).parent.parent / "units"
TEXT = "[Service]\nExecStart=gtrun reconcile\n"
PLAIN = Terms(environment={}, every=120.0)


def test_every_shipped_unit_executes_gtrun_and_begins_by_itself():
    assert [file.name for file in unit_files.shipped()] == sorted(path.name for path in UNITS.iterdir())
    for file in unit_files.shipped():
        assert "\nExecStart=gtrun " in file.read_text() or file.suffix != ".service"


def test_an_installation_by_pip_is_named_by_its_python(monkeypatch):
    monkeypatch.setattr("gtrun.release.installation.this_folder", lambda: None)
    monkeypatch.setattr(sys, "executable", "/opt/gtrun/bin/python")
    assert unit_files.rendered(TEXT, PLAIN).endswith("\nExecStart=/opt/gtrun/bin/python -I -m gtrun reconcile\n")
    monkeypatch.setattr(sys, "executable", "/home/a b/bin/python")
    with pytest.raises(LaunchFailed, match="cannot stand on a unit's command line"):
        unit_files.rendered(TEXT, PLAIN)


def test_of_releases_it_is_the_one_that_is_current_then(monkeypatch):
    folder = Path("/opt/gtrun/releases/abc")
    monkeypatch.setattr("gtrun.release.installation.this_folder", lambda: folder)
    release = Release(folder, commit="abc", checkout="/c", environment="/e", python="/p")
    monkeypatch.setattr("gtrun.release.installation.read", lambda _: release)
    assert unit_files.rendered(TEXT, PLAIN).endswith("\nExecStart=/opt/gtrun/bin/gtrun reconcile\n")


def test_what_is_shipped_is_the_default(monkeypatch):
    """So a package that ships the timer as it is sweeps as often as fleet.toml says by default."""
    monkeypatch.setattr(sys, "executable", "/opt/gtrun/bin/python")
    text = (UNITS / "gtrun-sweep.timer").read_text()
    assert load({}, None).schedule.every == PLAIN.every
    assert unit_files.rendered(text, PLAIN).endswith(text)
    often = unit_files.rendered(text, Terms(environment={}, every=0.25))
    assert "\nOnUnitInactiveSec=250ms\nRandomizedDelaySec=25ms\n" in re.sub("#.*\n", "", often)


def test_a_unit_gets_the_variables_that_it_would_not_have(tmp_path, monkeypatch):
    """The configuration that was asked for and the folders of its own; nothing that a manager has anyway."""
    monkeypatch.setattr("gtrun.config.source.SYSTEM", tmp_path / "none")
    file = tmp_path / "fleet.toml"
    file.write_text('[schedule]\nevery = "5m"\n')
    account = own({})
    fleet = load({}, file)

    def carried(environment, explicit=None):
        return unit_files.terms_of(fleet, account, environment, explicit).environment

    assert unit_files.terms_of(fleet, account, {}, file) == Terms(environment={"GTRUN_CONFIG": str(file)}, every=300.0)
    assert carried({"GTRUN_CONFIG": str(file), "PATH": "/bin", "DISPATCH_IGNORE_QUOTA": "1"}) == {
        "GTRUN_CONFIG": str(file)
    }
    monkeypatch.chdir(tmp_path)
    assert carried({}, Path("fleet.toml")) == {"GTRUN_CONFIG": str(file)}
    assert carried({"XDG_CONFIG_HOME": str(tmp_path / "empty")}) == {}
    (tmp_path / "gtrun").mkdir()
    file.rename(tmp_path / "gtrun/fleet.toml")
    assert carried({"XDG_CONFIG_HOME": str(tmp_path)}) == {"GTRUN_CONFIG": str(tmp_path / "gtrun/fleet.toml")}
    folders = {"XDG_STATE_HOME": "/srv/state", "XDG_DATA_HOME": f"{account.home}/.local/share"}
    assert carried(folders) == {"XDG_STATE_HOME": "/srv/state"}
    assert carried({"XDG_STATE_HOME": "relative"}) == {}


def test_a_variable_that_no_unit_file_carries(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/opt/gtrun/bin/python")
    with pytest.raises(LaunchFailed, match=r"GTRUN_CONFIG is .* which no unit file can carry"):
        unit_files.rendered(TEXT, Terms(environment={"GTRUN_CONFIG": "/\udcff"}, every=1.0))
