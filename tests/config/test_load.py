"""fleet.toml: which one counts, what it resolves to, and what every mistake in it says."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.config import BoardConfig, Fleet, Rig, RunProfile, find, load
from gtrun.config.parse import FLEET, parse
from gtrun.config.shapes import read as read_shape
from gtrun.errors import ConfigError, UsageError
from gtrun.model import Limits, Sandbox
from gtrun.text import plain


def read(text: str | bytes) -> Fleet:
    data = text if isinstance(text, bytes) else text.encode()
    return parse(data, "F", caller="ops", home="/home/ops", board="/data/board.db", lock="/data/claim.lock")


def mistakes(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.code == 78
    lines = caught.value.message.split("\n")
    assert all(line.startswith("F: ") and plain(line) == line for line in lines)
    return [line.removeprefix("F: ") for line in lines]


def mistake(text: str | bytes) -> str:
    lines = mistakes(text)
    assert len(lines) == 1
    return lines[0]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A caller with a home of its own, and no file for the whole box."""
    monkeypatch.setattr("gtrun.config.source.SYSTEM", tmp_path / "etc/gtrun/fleet.toml")
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), os.getegid(), "", str(tmp_path / "home"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    return tmp_path / "home"


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


class TestWhichFile:
    def test_without_any_file_there_is_one_agent_which_is_the_caller(self, home):
        fleet = load({}, None)
        assert fleet.source is None
        assert fleet.board == BoardConfig(path=f"{home}/.local/share/gtrun/board/board.db")
        assert fleet.rigs == {"here": Rig(name="here", gtrun=None, host=None)}
        assert list(fleet.agents) == ["me"]
        me = fleet.agent("me")
        assert (me.rig, me.account, me.run) == ("here", None, RunProfile())

    def test_the_order_of_the_places(self, home, tmp_path):
        environment = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
        system = write(tmp_path / "etc/gtrun/fleet.toml")
        assert load(environment, None).source == str(system)
        write(home / ".config/gtrun/fleet.toml")
        assert load(environment, None).source == str(system), "~/.config does not count beside XDG_CONFIG_HOME"
        xdg = write(tmp_path / "xdg/gtrun/fleet.toml")
        assert load(environment, None).source == str(xdg)
        variable = write(tmp_path / "variable.toml")
        environment["GTRUN_CONFIG"] = str(variable)
        assert load(environment, None).source == str(variable)
        explicit = write(tmp_path / "explicit.toml")
        assert load(environment, explicit).source == str(explicit)

    @pytest.mark.parametrize("value", [None, "", "relative", "~/x"])
    def test_a_relative_xdg_folder_counts_as_unset(self, home, value):
        file = write(home / ".config/gtrun/fleet.toml")
        environment = {} if value is None else {"XDG_CONFIG_HOME": value, "XDG_DATA_HOME": value, "GTRUN_CONFIG": ""}
        fleet = load(environment, None)
        assert fleet.source == str(file)
        assert fleet.board.path == f"{home}/.local/share/gtrun/board/board.db"

    @pytest.mark.usefixtures("home")
    def test_the_default_board_follows_xdg(self):
        assert load({"XDG_DATA_HOME": "/data"}, None).board.path == "/data/gtrun/board/board.db"

    def test_two_environments_of_one_account_meet_at_one_lock(self):
        """A timer has no XDG_STATE_HOME and a shell may: with a lock for each, two agents would get one issue."""
        locks = {load({"XDG_STATE_HOME": state}, None).claim.lock for state in ("", "/state", "/other")}
        assert locks == {load({}, None).claim.lock}

    def test_the_board_is_found_from_the_home_of_the_caller(self, home):
        write(home / ".config/gtrun/fleet.toml", '[board]\npath = "~/b/board.db"')
        assert load({}, None).board.path == f"{home}/b/board.db"

    @pytest.mark.parametrize(("explicit", "by"), [(True, "--config"), (False, "GTRUN_CONFIG")])
    def test_a_file_that_was_named_must_exist(self, home, tmp_path, explicit, by):
        write(home / ".config/gtrun/fleet.toml")
        missing = tmp_path / "missing.toml"
        with pytest.raises(ConfigError, match=f"there is no file {missing}, which {by} names") as caught:
            load({} if explicit else {"GTRUN_CONFIG": str(missing)}, missing if explicit else None)
        assert caught.value.code == 78

    def test_a_dangling_link_is_not_passed_over(self, home, tmp_path):
        write(tmp_path / "etc/gtrun/fleet.toml")
        (home / ".config/gtrun").mkdir(parents=True)
        (home / ".config/gtrun/fleet.toml").symlink_to("nowhere.toml")
        with pytest.raises(ConfigError, match="cannot read the configuration: No such file"):
            load({}, None)

    @pytest.mark.usefixtures("home")
    def test_a_relative_name_is_made_absolute(self, tmp_path, monkeypatch):
        write(tmp_path / "here.toml")
        monkeypatch.chdir(tmp_path)
        assert find({}, Path("here.toml")) == tmp_path / "here.toml"
        assert load({"GTRUN_CONFIG": "here.toml"}, None).source == str(tmp_path / "here.toml")

    @pytest.mark.usefixtures("home")
    def test_the_mistakes_of_a_file_name_it_in_full(self, tmp_path):
        file = write(tmp_path / "f.toml", "claim = 1\nrum = 2")
        with pytest.raises(ConfigError) as caught:
            load({}, file)
        assert [line.partition(": ")[0] for line in caught.value.message.split("\n")] == [str(file), str(file)]

    def test_an_account_without_an_entry_is_an_error_of_the_configuration(self, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)
        with pytest.raises(ConfigError, match="has no account on this box"):
            load({}, None)


class TestResolving:
    FULL = """
        [board]
        kind = "local"
        path = "/srv/board.db"
        terminal_labels = ["done"]
        terminal_glyphs = []
        [run]
        backend = "claude"
        command = ["claude", "-p"]
        prompt = "~/p.md"
        workdir = "~"
        time_limit = "2h"
        stop_timeout = "5s"
        environment = { A = "1", B = "2" }
        path = ["~/bin", "/bin"]
        keep = "1d"
        limits = { memory_max = "4G", tasks_max = 512, cpu_quota = "150%" }
        sandbox = { protect_system = "strict", protect_home = true, read_write_paths = ["~/a", "~/b"] }
        quota_patterns = ["out of * credits"]
        quota_exit_codes = [75]
        [rigs.box1]
        gtrun = "/opt/gtrun/bin/gtrun"
        [rigs.box2]
        host = "ops@box2.example"
        gtrun = "/opt/gtrun/bin/gtrun"
        [agents.alice]
        rig = "box1"
        account = "alice"
        [agents.alice.run]
        command = ["codex", "exec", "-"]
        environment = { B = "3", C = "4" }
        limits = { memory_max = "8G", memory_high = "6G", cpu_weight = 50 }
        sandbox = { protect_home = false, private_tmp = true, read_write_paths = ["~/mine"] }
        [agents.bob]
        rig = "box2"
        account = "alice"
    """

    def test_everything(self):
        fleet = read(self.FULL)
        assert fleet.source == "F"
        assert fleet.board == BoardConfig(path="/srv/board.db", terminal_labels=("done",), terminal_glyphs=())
        assert fleet.rigs == {
            "box1": Rig(name="box1", gtrun="/opt/gtrun/bin/gtrun"),
            "box2": Rig(name="box2", host="ops@box2.example", gtrun="/opt/gtrun/bin/gtrun"),
        }
        bob = fleet.agent("bob")
        assert (bob.name, bob.rig, bob.account) == ("bob", "box2", "alice")
        assert bob.run == RunProfile(
            backend="claude",
            command=("claude", "-p"),
            prompt="~/p.md",
            workdir="~",
            time_limit=7200.0,
            stop_timeout=5.0,
            environment={"A": "1", "B": "2"},
            path=("~/bin", "/bin"),
            keep=86400.0,
            limits=Limits(memory_max=4 << 30, tasks_max=512, cpu_quota=150),
            sandbox=Sandbox(protect_system="strict", protect_home="yes", read_write_paths=("~/a", "~/b")),
            quota_patterns=("out of * credits",),
            quota_exit_codes=(75,),
        )

    def test_an_agent_overrides_key_by_key_and_tables_too(self):
        run = read(self.FULL).agent("alice").run
        assert run.command == ("codex", "exec", "-")
        assert run.backend == "claude"
        assert run.environment == {"A": "1", "B": "3", "C": "4"}
        assert run.limits == Limits(
            memory_max=8 << 30, memory_high=6 << 30, tasks_max=512, cpu_weight=50, cpu_quota=150
        )
        assert run.sandbox == Sandbox(protect_system="strict", private_tmp=True, read_write_paths=("~/mine",))

    def test_one_agent_leaves_the_others_alone(self):
        fleet = read(self.FULL)
        fleet.agent("alice").run.environment["LEAK"] = "1"
        assert "LEAK" not in fleet.agent("bob").run.environment

    def test_an_empty_file_is_the_defaults(self):
        fleet = read("")
        assert (list(fleet.rigs), list(fleet.agents), fleet.board.path) == (["here"], ["me"], "/data/board.db")

    def test_the_only_rig_needs_no_naming(self):
        fleet = read("[rigs.box1]\n[agents.alice]")
        assert fleet.agent("alice").rig == "box1"
        assert read("[rigs.box1]").agent("me").rig == "box1"

    def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(self):
        assert read("\ufeff[run]\r\nbackend = 'x'\r\n".encode()).agent("me").run.backend == "x"


class TestAgents:
    FLEET = read("[rigs.box1]\n[rigs.box2]\n[agents.alice]\nrig='box1'\n[agents.bob]\nrig='box1'\naccount='bob'")

    def test_an_unknown_one(self):
        with pytest.raises(UsageError, match="there is no agent 'alcie' in F") as caught:
            self.FLEET.agent("alcie")
        assert caught.value.code == 2
        assert caught.value.hint == "known agents: alice, bob"

    @pytest.mark.parametrize(
        ("rig", "hint"), [("box1", "name one of its agents: alice, bob"), ("box2", "no agent has rig = 'box2'")]
    )
    def test_a_rig_is_not_an_agent(self, rig, hint):
        with pytest.raises(UsageError, match=f"{rig} is a rig, and the issue is named") as caught:
            self.FLEET.agent(rig)
        assert (caught.value.code, caught.value.hint) == (2, hint)

    def test_a_target_is_an_agent_or_all_of_a_rig(self):
        names = {target: [agent.name for agent in self.FLEET.target(target)] for target in ("alice", "box1", "box2")}
        assert names == {"alice": ["alice"], "box1": ["alice", "bob"], "box2": []}
        with pytest.raises(UsageError, match="there is no agent 'box3'"):
            self.FLEET.target("box3")

    def test_hostile_names_stay_in_one_short_line(self):
        with pytest.raises(UsageError) as caught:
            self.FLEET.agent("\x1b[2J\n" * 999)
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 400


QUOTED = 'expected a duration in quotes like "90s", "20m" or "2h", found'
COUNT = "expected a whole number from 1 to 10000, found"
WHOLE = "expected a whole number from 1 to 4194304, found"
TAKEN = "agents.b: expected an account of its own, but it and agents.a are both the account 'ops'"


def in_run(line: str) -> str:
    return f"[run]\n{line}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # unknown and planned keys
        ("[run]\ncomand = 1", "run.comand: unknown key; did you mean 'command'? known here: backend, c"),
        ("[agents.alice.run]\ncomand = 1", "agents.alice.run.comand: unknown key; did you mean 'command'? known"),
        ("[agents.alice]\nrigg = 1", "agents.alice.rigg: unknown key; did you mean 'rig'? known here: rig, account"),
        ("[rigs.b]\nhots = 1", "rigs.b.hots: unknown key; did you mean 'host'? known here: gtrun, host, max_runs"),
        ("[bord]", "bord: unknown key; did you mean 'board'? known here: board, claim, schedule, notify, run, plugins"),
        (in_run('"a.b\\n" = 1'), 'run."a.b\\x0a": unknown key; '),
        (in_run("limits = { memory = 1 }"), "run.limits.memory: unknown key; did you mean 'memory_max'? known here: "),
        ("[claim]\nhost = 1", "claim.host: expected a text, found the number 1"),
        ('[claim]\nhost = "box1"', "claim.host: expected an account and a host like ops@box1, found 'box1'"),
        ('[claim]\nhost = "-o@box1"', "claim.host: expected an account and a host like ops@box1, found '-o@box1'"),
        ('[claim]\nhost = "ops@-x"', "claim.host: expected an account and a host like ops@box1, found 'ops@-x'"),
        ('[claim]\nhost = "o@b@c"', "claim.host: expected an account and a host like ops@box1, found 'o@b@c'"),
        ('[claim]\nhost = "ops@b"\nmachine_id = "F"', "claim.machine_id: expected the 32 characters of /etc/"),
        ('[claim]\nhost = "ops@b"\ngtrun = "gt run"', "claim.gtrun: expected an absolute path"),
        (in_run("clones = '~/a'"), "run.clones: expected a list like [\"~/src/app\"], found '~/a'"),
        (in_run("clones = ['a']"), "run.clones: expected an absolute path or one beginning with ~/, found 'a'"),
        (in_run("clones = ['~/a', '~/a']"), "run.clones: expected each clone once, found '~/a' again"),
        (in_run("worktree = 'new'"), 'run.worktree: expected "clone" or "fresh", found \'new\''),
        (in_run("branch = '-x'"), 'run.branch: expected the name of a branch like "main", found \'-x\''),
        (in_run("branch = 'a..b'"), 'run.branch: expected the name of a branch like "main", found \'a..b\''),
        (in_run("branch = 'HEAD'"), 'run.branch: expected the name of a branch like "main", found \'HEAD\''),
        (in_run("branch = 'a.lock'"), 'run.branch: expected the name of a branch like "main", found \'a.lock\''),
        (in_run("stash_max = 5"), 'run.stash_max: expected a size in quotes like "512M" or "4G", found the number 5'),
        (in_run("idle_limit = '500ms'"), "run.idle_limit: expected at least 1s, found '500ms'"),
        (in_run("idle_limit = 5"), f"run.idle_limit: {QUOTED} the number 5"),
        ("[agents.a]\nskills = 'go'", "agents.a.skills: expected a list like [\"go\", \"sql\"], found 'go'"),
        ("[agents.a]\nskills = ['  ']", "agents.a.skills: expected a text that is not empty"),
        ('[agents.a]\nskills = ["' + 'x' * 45 + '"]', "agents.a.skills: expected at most 44 characters, so that"),
        ("[agents.a]\nmax_runs = 0", f"agents.a.max_runs: {COUNT} the number 0"),
        ("[agents.a]\nmax_runs = true", f"agents.a.max_runs: {COUNT} true"),
        ("[rigs.b]\nmax_runs = '4'", f"rigs.b.max_runs: {COUNT} '4'"),
        ("[schedule]\nbatch = 0", f"schedule.batch: {COUNT} the number 0"),
        ("[schedule]\nattempts = 0", f"schedule.attempts: {COUNT} the number 0"),
        ("[schedule]\nsettle = 5", f"schedule.settle: {QUOTED} the number 5"),
        ("[schedule]\nbackoff = '0s'", "schedule.backoff: expected a duration above zero"),
        ("[schedule]\ndecay = '1d'", "schedule.decay: unknown key; "),
        ("[board]\nready_label = ''", "board.ready_label: expected a text that is not empty"),
        ("[board]\ntoken_file = ''", "board.token_file: expected an absolute path or one beginning with ~/"),
        ("[board]\nrepo = 'o/r'", 'board.repo: only a board with kind = "github" has it'),
        ("[board]\nrepo = 'o/../r'", 'board.repo: expected a repository like "owner/name", found \'o/../r\''),
        ("[board]\napi = 'http://example.com'", "board.api: expected an address like"),
        ("[board]\napi = 'https://u:p@example.com'", "board.api: expected an address like"),
        ("[board]\ntrusted = ['NONE']", "board.trusted: expected a login, or one of OWNER"),
        ("[board]\ntrusted = ['a b']", "board.trusted: expected a login like"),
        ("[board]\nkind = 'github'", 'board.repo: missing; expected the repository whose issues are the board'),
        ("[board]\nkind = 'github'\nrepo = 'o/r'\npath = '/b.db'", "board.path: only a board with kind = \"local\""),
        ("[board]\nkind = 'gitlab'", 'board.kind: expected "local" or "github", found \'gitlab\''),
        # tables
        ("run = 1", "run: expected a table like { backend = … }, found the number 1"),
        ("agents = []", "agents: expected a table like { NAME = … }, found a list"),
        ("[agents]\nalice = 'x'", "agents.alice: expected a table like { rig = … }, found 'x'"),
        (in_run("environment = ['A=1']"), "run.environment: expected a table like { NAME = … }, found a list"),
        # names
        ("[agents.Alice]", "agents.Alice: expected a name of at most 32 characters"),
        ("[agents.-a]", "agents.-a: expected a name"),
        ("[rigs._a]", "rigs._a: expected a name"),
        (f"[rigs.{'a' * 33}]", f"rigs.{'a' * 33}: expected a name"),
        ('[agents."a/b"]', 'agents."a/b": expected a name'),
        ('[agents."a\\n"]', 'agents."a\\x0a": expected a name'),
        ('[agents."é"]', 'agents."é": expected a name'),
        ('[agents.""]', 'agents."": expected a name'),
        # rigs and accounts
        ("[agents.a]\nrig = 'nope'", "agents.a.rig: there is no rig 'nope'; known: here"),
        ("[rigs.x]\n[rigs.y]\n[agents.a]", "agents.a.rig: missing; expected one of x, y"),
        ("[rigs]\n[agents.a]", "agents.a.rig: missing; expected one of the rigs, and there is none"),
        ("[agents]", "agents: expected at least one agent, found an empty table"),
        ("[rigs.a]\n[agents.a]", "agents.a: rigs.a has this name already"),
        ("[rigs.me]", "agents.me: rigs.me has this name already"),
        ("[agents.a]\n[agents.b]", TAKEN),
        ("[agents.a]\naccount='ops'\n[agents.b]", TAKEN),
        (
            "[rigs.x]\n[rigs.y]\n[agents.a]\nrig='x'\naccount='u'\n[agents.b]\nrig='y'\naccount='u'",
            "agents.b: expected an account of its own, but it and agents.a are both the account 'u' of one box",
        ),
        ("[agents.a]\naccount = 'Root'", "agents.a.account: expected the name of a unix account, found 'Root'"),
        ("[agents.a]\naccount = ''", "agents.a.account: expected the name of a unix account"),
        ("[agents.a]\naccount = '-x'", "agents.a.account: expected the name of a unix account"),
        ('[agents.a]\naccount = "a\\n"', "agents.a.account: expected the name of a unix account"),
        ("[agents.a]\naccount = 'a$b'", "agents.a.account: expected the name of a unix account"),
        (f"[agents.a]\naccount = '{'a' * 33}'", "agents.a.account: expected the name of a unix account"),
        ("[agents.a]\naccount = 0", "agents.a.account: expected a text, found the number 0"),
        ("[rigs.b]\nhost = '-oProxyCommand=x'", "rigs.b.host: expected a host like box2.example"),
        ("[rigs.b]\nhost = 'ops@'", "rigs.b.host: expected a host like box2.example"),
        ("[rigs.b]\nhost = 'box2'\n[agents.a]", "rigs.b.gtrun: missing; a rig with a host needs the path of gtrun"),
        ("[agents.a]\nreach = 'telnet'", 'agents.a.reach: expected "ssh" or "sudo", found \'telnet\''),
        ("[agents.a]\nreach = true", 'agents.a.reach: expected "ssh" or "sudo", found true'),
        (
            "[rigs.b]\nhost = 'box2'\ngtrun = '/g'\n[agents.a]\nreach = 'sudo'",
            'agents.a.reach: expected "ssh" or nothing, as rig b is another box',
        ),
        (
            ("[rigs]\nx = {host='u@h', gtrun='/g'}\ny = {host='h', gtrun='/g'}\n"
             "[agents.a]\nrig='x'\n[agents.b]\nrig='y'\naccount='u'"),
            "agents.b: expected an account of its own, but it and agents.a are both the account 'u' of one box",
        ),
        ("[rigs.b]\nhost = 'a b'", "rigs.b.host: expected a host like box2.example"),
        ("[rigs.b]\ngtrun = 'gtrun'", "rigs.b.gtrun: expected an absolute path of A-Z"),
        ("[rigs.b]\ngtrun = '~/gtrun'", "rigs.b.gtrun: expected an absolute path of A-Z"),
        ("[rigs.b]\ngtrun = '/opt/my gtrun'", "rigs.b.gtrun: expected an absolute path of A-Z"),
        ("[rigs.b]\ngtrun = '/opt/$x'", "rigs.b.gtrun: expected an absolute path of A-Z"),
        # board
        ("[board]\npath = 'board.db'", "board.path: expected an absolute path or one beginning with ~/, found"),
        ("[board]\npath = '~'", "board.path: expected an absolute path or one beginning with ~/"),
        ("[board]\npath = '~bob/b'", "board.path: expected an absolute path or one beginning with ~/"),
        ("[board]\nterminal_labels = 'done'", "board.terminal_labels: expected a list like "),
        ("[board]\nterminal_labels = ['']", "board.terminal_labels: expected a text that is not empty"),
        ("[board]\nterminal_glyphs = [' ']", "board.terminal_glyphs: expected a text that is not empty"),
        ("[board]\nterminal_glyphs = ['g']", "board.terminal_glyphs: expected no beginning of gtrun's own comments"),
        ("[board]\nterminal_glyphs = ['gtrun: x']", "board.terminal_glyphs: expected no beginning of gtrun's own"),
        # times, sizes, numbers
        (in_run("time_limit = 90"), f"run.time_limit: {QUOTED} the number 90"),
        (in_run("time_limit = '90'"), 'run.time_limit: expected a duration like "90s", "20m", "2h" or "30d", f'),
        (in_run("time_limit = '0s'"), "run.time_limit: expected a duration above zero"),
        (in_run("time_limit = true"), f"run.time_limit: {QUOTED} true"),
        (in_run("time_limit = 10:30:00"), f"run.time_limit: {QUOTED} a date"),
        (in_run("stop_timeout = '4s'"), "run.stop_timeout: expected at least 5s, as the close-out works within it"),
        (in_run("update = 'no'"), "run.update: expected true or false, found 'no'"),
        (in_run("keep = 'forever'"), "run.keep: expected a duration like"),
        (in_run("quota_patterns = ['*']"), "run.quota_patterns: expected a text of 5 to 200 characters besides *"),
        (in_run("quota_patterns = 'limit'"), "run.quota_patterns: expected a list like"),
        (in_run("quota_exit_codes = [0]"), "run.quota_exit_codes: expected a whole number from 1 to 255, found"),
        (in_run("quota_exit_codes = [256]"), "run.quota_exit_codes: expected a whole number from 1 to 255, found"),
        (in_run("limits = { memory_max = 4 }"), 'run.limits.memory_max: expected a size in quotes like "512M" or "4G"'),
        (in_run("limits = { memory_max = '4GB' }"), 'run.limits.memory_max: expected a size like "512M" or "4G"'),
        (in_run("limits = { memory_high = '-1' }"), "run.limits.memory_high: expected a size like"),
        (in_run("limits = { tasks_max = 0 }"), f"run.limits.tasks_max: {WHOLE} the number 0"),
        (in_run("limits = { tasks_max = true }"), f"run.limits.tasks_max: {WHOLE} true"),
        (in_run("limits = { tasks_max = 1.0 }"), f"run.limits.tasks_max: {WHOLE} the number 1.0"),
        (in_run("limits = { cpu_weight = 10001 }"), "run.limits.cpu_weight: expected a whole number from 1 to 10000"),
        (in_run("limits = { cpu_quota = 150 }"), "run.limits.cpu_quota: expected whole per cents in quotes"),
        (in_run("limits = { cpu_quota = '0%' }"), "run.limits.cpu_quota: expected whole per cents"),
        (in_run("limits = { cpu_quota = '150%\\n' }"), "run.limits.cpu_quota: expected whole per cents"),
        (in_run("limits = { oom_policy = 'none' }"), 'run.limits.oom_policy: expected "stop", "kill" or "continue"'),
        (in_run("limits = { nofile = 3 }"), "run.limits.nofile: expected a whole number from 64 to"),
        (in_run("limits = { memory_swap_max = 0 }"), "run.limits.memory_swap_max: expected a size in quotes"),
        (in_run("slice = 'agents'"), 'run.slice: expected the name of a slice like "agents.slice", found'),
        (in_run("slice = 'a--b.slice'"), "run.slice: expected the name of a slice"),
        (in_run("slice = '../x.slice'"), "run.slice: expected the name of a slice"),
        (in_run("sandbox = { private_tmp = 'yes' }"), "run.sandbox.private_tmp: expected true or false, found 'yes'"),
        (in_run("sandbox = { protect_home = 'off' }"), 'run.sandbox.protect_home: expected true, false, "read-only"'),
        (in_run("sandbox = { protect_system = 1 }"), 'run.sandbox.protect_system: expected true, false, "full" or'),
        (in_run("sandbox = { ProtectHome = true }"), "run.sandbox.ProtectHome: unknown key; did you mean 'protect"),
        (in_run("sandbox = { read_write_paths = ['x'] }"), "run.sandbox.read_write_paths: expected an absolute path"),
        (in_run("sandbox = { bind_paths = ['/a b'] }"), "run.sandbox.bind_paths: expected a path of A-Z a-z 0-9"),
        (in_run("sandbox = { bind_paths = ['/a:/b'] }"), "run.sandbox.bind_paths: expected a path of A-Z a-z 0-9"),
        (in_run("sandbox = { bind_paths = ['/a/../b'] }"), "run.sandbox.bind_paths: expected a path without .., found"),
        ("[agents.a.run.limits]\ntasks_max = -1", "agents.a.run.limits.tasks_max: expected a whole number"),
        # paths
        (in_run("prompt = 'p.md'"), "run.prompt: expected an absolute path or one beginning with ~/, found 'p.md'"),
        (in_run("workdir = './src'"), "run.workdir: expected an absolute path or one beginning with ~/, found './src'"),
        (in_run("workdir = '~root/x'"), "run.workdir: expected an absolute path or one beginning with ~/"),
        (in_run('workdir = "/a\\u0000b"'), "run.workdir: expected a text without NUL"),
        (in_run("path = []"), "run.path: expected at least one folder, found an empty list"),
        (in_run("path = '/bin'"), "run.path: expected a list like "),
        (in_run("path = ['bin']"), "run.path: expected an absolute path or one beginning with ~/, found 'bin'"),
        (in_run("path = ['']"), "run.path: expected an absolute path or one beginning with ~/, found ''"),
        (in_run("path = ['/a:/b']"), "run.path: expected a folder without a colon, found '/a:/b'"),
        # environment
        (in_run("environment = { '1A' = 'x' }"), "run.environment.1A: expected the name of a variable"),
        (in_run("environment = { 'A=B' = 'x' }"), 'run.environment."A=B": expected the name of a variable'),
        (in_run('environment = { "A\\n" = "x" }'), 'run.environment."A\\x0a": expected the name of a variable'),
        (in_run("environment = { A = 1 }"), "run.environment.A: expected a text, found the number 1"),
        (in_run('environment = { A = "x\\u0000" }'), "run.environment.A: expected a text without NUL"),
        (in_run(f"environment = {{ A = '{'é' * 65536}' }}"), "run.environment.A: expected at most 131071 bytes"),
        (in_run("environment = { GTRUN_BACKEND = 'x' }"), "run.environment.GTRUN_BACKEND: reserved: gtrun sets it"),
        (in_run("environment = { INVOCATION_ID = 'x' }"), "run.environment.INVOCATION_ID: reserved: systemd sets it"),
        (in_run("environment = { NOTIFY_SOCKET = 'x' }"), "run.environment.NOTIFY_SOCKET: reserved: systemd sets it"),
        (in_run("environment = { PATH = '/bin' }"), "run.environment.PATH: reserved: it is made from the key path"),
        ("[agents.a.run.environment]\nMAINPID = '1'", "agents.a.run.environment.MAINPID: reserved"),
        # credentials
        (in_run("credentials = {'a b' = '/t'}"), 'run.credentials."a b": expected a name of at most 255 characters of'),
        (in_run("credentials = {'..' = '/t'}"), 'run.credentials."..": expected a name'),
        (in_run("credentials = {a = 't'}"), "run.credentials.a: expected an absolute path or one beginning with ~/, f"),
        (in_run("credentials = {a = {encrypted = 1}}"), "run.credentials.a: expected a text, found the number 1"),
        (in_run("credentials = {a = {path = '/t'}}"), "run.credentials.a: expected a path, { encrypted = "),
        (in_run("credentials = {a = {command = []}}"), "run.credentials.a: expected the name of a program"),
        (in_run("credentials = {a = {command = 'x'}}"), 'run.credentials.a: expected a list like ["pass", "show", '),
        (in_run("credential_environment = {A = 't'}"), "agents.me.run.credential_environment.A: there is no"),
        (in_run("credential_environment = {PATH = 't'}"), "run.credential_environment.PATH: reserved"),
        (
            in_run("credentials = {t = '/t'}\ncredential_environment = {A = 't'}\nenvironment = {A = ''}"),
            "agents.me.run.credential_environment.A: environment sets this variable already",
        ),
        # text
        (in_run("backend = 1"), "run.backend: expected a text, found the number 1"),
        (in_run('backend = "a\\nb"'), "run.backend: expected one line of text without control characters, found"),
    ],
)  # fmt: skip
def test_a_mistake_says_where_and_what(text, message):
    assert mistake(text).startswith(message)


def test_a_misspelt_key_is_told_its_spelling():
    assert mistake(in_run("comand = 1")).startswith("run.comand: unknown key; did you mean 'command'?")
    assert "did you mean" not in mistake(in_run("zzz = 1"))


def test_every_mistake_is_told_at_once():
    text = "[run]\ncomand = []\nkeep = 1\n[claim]\nhost = 1\n[rigs.B]\n[agents.a.run]\ncommand = []"
    assert [line.partition(":")[0] for line in mistakes(text)] == [
        "run.comand",
        "run.keep",
        "claim.host",
        "rigs.B",
        "agents.a.run.command",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nbackend = ", "line 2, column 11: not TOML: Invalid value"),
        ("[run]\nx = 'a", "line 2, column 7: not TOML: "),
        ("[run", "line 1, column 5: not TOML: "),
        ("a = 1\na = 2", "line 2, column 6: not TOML: Cannot overwrite a value"),
        ("[run]\n[run]", "line 2, column 5: not TOML: Cannot declare"),
        ("a = " + "9" * 5000, "not TOML: Exceeds the limit"),
        ("a = " + "[" * 100_000, "nested too deeply"),
        (b"[run]\nbackend = '\xff'", "line 2: expected UTF-8, found the byte 0xff"),
        ("[run]\nbackend = 'a\x1b'", "line 2, column 13: not TOML: "),
    ],
)
def test_what_is_no_toml_says_where(text, message):
    assert mistake(text).startswith(message)


class TestCommand:
    @pytest.mark.parametrize(
        "command",
        [
            ["claude", "-p"],
            ["codex", "exec", "-"],
            ["~/bin/x", "{issue}", "{url}", "{run}", "{agent}", "{workdir}", "--file={prompt_file}"],
            ["x", "--", "{prompt}", "{title}"],
            ["x", "--prompt={prompt}"],
            ["x", "Title: {title}"],
            ["x", '{{"title": "{title}"}}'],
            ["x", ""],
            ["sh", "-c", "echo '{{}}' $1"],
            ["/usr/bin/env", "x", "a\nb\tc", "naïve ✅"],
            ["x{{}}"],
            ["sh", "-c", 'tool -- "$1"', "--", "{prompt}"],
        ],
    )
    def test_accepted(self, command):
        assert read(in_run(f"command = {as_toml(command)}")).agent("me").run.command == tuple(command)

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ([], "expected the name of a program as the first element"),
            ([""], "expected the name of a program as the first element"),
            (["{prompt}"], "expected the name of a program as the first element, found '{prompt}'"),
            (["x{issue}"], "expected the name of a program as the first element, found 'x{issue}'"),
            (["x", "{isue}"], "unknown placeholder {isue} in '{isue}'; known here: {issue} {url} {run} {agent} "),
            (["x", "{body}"], "unknown placeholder {body}"),
            (["x", "{0}"], "in '{0}': '{0}' is no placeholder"),
            (["x", "{issue!r}"], "in '{issue!r}': '{issue!r}' is no placeholder"),
            (["x", '{"a": 1}'], "in '{\"a\": 1}': "),
            (["x", "a}"], "in 'a}': a single '}' means nothing: write '}}' for a brace"),
            (["x", "a\0b"], "expected a text without NUL"),
            (["x", "y" * 131_072], "expected at most 131071 bytes"),
            (
                ["x", "{prompt}"],
                "'{prompt}' begins with the text of an issue, which could be an option",
            ),
            (["x", "{title}!"], "'{title}!' begins with the text of an issue"),
            (["x", "{url}{title}"], "'{url}{title}' begins with the text of an issue"),
            (["x", "-{title}"], "'-{title}' begins with the text of an issue"),
            (["x", "--{title}"], "'--{title}' begins with the text of an issue"),
            (["x", "{prompt}", "--"], "'{prompt}' begins with the text of an issue"),
            (["x", "--prompt", "{prompt}"], "'{prompt}' begins with the text of an issue"),
            (["sh", "-c", "claude -p {prompt}"], "'claude -p {prompt}' would have a shell run what an issue says"),
            (["/bin/bash", "-lc", "x {title}"], "'x {title}' would have a shell run what an issue says"),
            (["env", "dash", "--", "-c", "{title}"], "'{title}' would have a shell run what an issue says"),
        ],
    )
    def test_refused(self, command, message):
        assert mistake(in_run(f"command = {as_toml(command)}")).startswith(f"run.command: {message}")

    def test_both_ways_out_are_told(self):
        told = mistake(in_run('command = ["x", "{prompt}"]'))
        assert '["tool", "--", "{prompt}"]' in told
        assert '["tool", "--prompt={prompt}"]' in told

    @pytest.mark.parametrize(
        ("toml", "what"), [("'claude -p'", "'claude -p'"), ("{ a = 1 }", "a table"), ("1", "the number 1")]
    )
    def test_one_text_is_not_split_into_words(self, toml, what):
        assert (
            mistake(in_run(f"command = {toml}")) == f'run.command: expected a list like ["claude", "-p"], found {what}'
        )

    def test_an_element_that_is_no_text(self):
        assert mistake(in_run('command = ["x", 1]')) == "run.command: expected a text, found the number 1"


def test_without_a_command_the_fleet_loads():
    assert read("").agent("me").run.command == ()


def as_toml(items: list[str]) -> str:
    return json.dumps(items, ensure_ascii=False)


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates()).filter(
    lambda value: value is not None
)
keys = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            "run",
            "rigs",
            "agents",
            "board",
            "command",
            "path",
            "limits",
            "environment",
            "memory_max",
            "rig",
            "account",
            "x",
        ]
    ),
)
trees = st.dictionaries(
    keys, st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3))
)


@given(trees)
def test_any_tree_gives_a_fleet_or_mistakes_one_a_line(tree):
    wrong: list[str] = []
    read_shape(FLEET, tree, wrong)
    assert all(plain(line) == line and ": " in line for line in wrong)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_fleet_or_a_configuration_error(data):
    try:
        fleet = read(data)
    except ConfigError as error:
        assert all(line.startswith("F: ") and plain(line) == line for line in error.message.split("\n"))  # noqa: PT017
    else:
        assert fleet.agents


HEAVY = {"tomllib", "pystemd", "typer", "inspect", "dataclasses", "difflib", "subprocess", "sqlite3", "json", "rich"}


def imported(code: str) -> set[str]:
    """The modules that the code imports beyond those that msgspec itself needs."""
    script = (
        f"import sys, msgspec, pwd, os, pathlib; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={})
    return set(done.stdout.split())


def test_without_a_file_only_our_own_modules_are_imported(tmp_path):
    code = (
        "import gtrun.config.source as it; from pathlib import Path; "
        f"it.SYSTEM = Path({str(tmp_path / 'none')!r}); it.load({{'XDG_CONFIG_HOME': {str(tmp_path)!r}}}, None)"
    )
    modules = imported(code)
    assert "gtrun.config.source" in modules
    assert {name for name in modules if not name.startswith("gtrun")} == set()
    assert "gtrun.config.parse" not in modules


def test_a_file_without_mistakes_costs_no_more_than_tomllib(tmp_path):
    file = write(tmp_path / "f.toml", "[run]\ncommand = ['x']")
    modules = imported(f"from gtrun.config import load; from pathlib import Path; load({{}}, Path({str(file)!r}))")
    assert "tomllib" in modules
    assert not modules & (HEAVY - {"tomllib"})
