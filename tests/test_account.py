"""Whose manager and whose state: what the environment may say, and what is derived where it does not."""

import os
import pwd

import pytest

from gtrun.account import lingers, named, own
from gtrun.errors import ConfigError, NoManager

ME = pwd.getpwuid(os.geteuid())
DERIVED = f"/run/user/{ME.pw_uid}"


@pytest.mark.parametrize("value", [None, "", "relative", "/no/such/folder", DERIVED])
def test_the_runtime_folder_is_derived(value):
    account = own({} if value is None else {"XDG_RUNTIME_DIR": value})
    assert account.runtime == DERIVED
    assert account.bus == f"{DERIVED}/bus"


def test_a_relative_runtime_folder_does_not_count_even_if_it_is_there(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    assert own({"XDG_RUNTIME_DIR": "run"}).runtime == DERIVED


def test_a_runtime_folder_of_ones_own_counts(tmp_path):
    assert own({"XDG_RUNTIME_DIR": str(tmp_path)}).runtime == str(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_somebody_else_is_refused(tmp_path):
    os.chown(tmp_path, 4711, 4711)
    with pytest.raises(NoManager, match="belongs to user ID 4711") as caught:
        own({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert caught.value.code == 69
    assert caught.value.hint.startswith("unset XDG_RUNTIME_DIR")


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({}, f"{ME.pw_dir}/.local/state/gtrun"),
        ({"XDG_STATE_HOME": "/x"}, "/x/gtrun"),
        ({"XDG_STATE_HOME": "x"}, f"{ME.pw_dir}/.local/state/gtrun"),
        ({"HOME": "/elsewhere"}, f"{ME.pw_dir}/.local/state/gtrun"),
    ],
)
def test_the_state_folder(environment, state):
    assert own(environment).state == state


def test_another_account_has_its_default_folders():
    nobody = pwd.getpwnam("nobody")
    account = named("nobody")
    assert (account.uid, account.gid, account.home) == (nobody.pw_uid, nobody.pw_gid, nobody.pw_dir)
    assert account.state == f"{nobody.pw_dir}/.local/state/gtrun"
    assert account.runtime == f"/run/user/{nobody.pw_uid}"
    assert not lingers(account)
    assert f"enable-linger nobody && sudo systemctl restart user@{nobody.pw_uid}" in account.how_to_start_manager()


def test_an_account_that_is_none():
    with pytest.raises(ConfigError, match="there is no account 'no-such-account'"):
        named("no-such-account")
