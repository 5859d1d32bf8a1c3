"""`gtrun init`, and the file that it writes."""

import os
import pwd
import re
import stat
from pathlib import Path

import pytest
import typer

from gtrun.cli.commands.init import app
from gtrun.cli.invocation import Invocation
from gtrun.config import Fleet, PluginProfile, load
from gtrun.config.parse import FLEET, parse
from gtrun.config.shapes import Keys, Named
from gtrun.config.template import target, template
from gtrun.errors import ConfigError, GtrunError
from gtrun.model import GitHubPlace

TEXT = template().decode()
ONLY_ON_GITHUB = re.compile("#(repo|api|token_file|trusted|priority_labels) = ")
ONLY_LOCAL = re.compile("#path = .*board.db")
MODE = 0o644 if os.geteuid() == 0 else 0o600


def read(text: str) -> Fleet:
    return parse(text.encode(), "F", caller="ops", home="/home/ops", board="/data/board.db", lock="/data/claim.lock")


def settings(text: str) -> list[int]:
    """The numbers of the lines that are settings commented out: a # and no space."""
    return [number for number, line in enumerate(text.split("\n")) if re.match(r"#[^ ]", line)]


def uncomment(numbers: list[int]) -> str:
    """The template with these settings in force, and those without which the board's would be none."""
    lines = TEXT.split("\n")
    text = "\n".join(line[1:] if number in numbers else line for number, line in enumerate(lines))
    if any(ONLY_ON_GITHUB.match(lines[number]) for number in numbers):
        text = re.sub(r'^#?kind = "local"$', 'kind = "github"', text, flags=re.MULTILINE)
        text = re.sub(r"^#repo = ", "repo = ", text, flags=re.MULTILINE)
    return text


def of_kind(pattern: re.Pattern[str]) -> list[int]:
    """All settings but those that only a board of the other kind has."""
    lines = TEXT.split("\n")
    return [number for number in settings(TEXT) if not pattern.match(lines[number])]


def blocks() -> list[list[int]]:
    """What is uncommented together: a table that is commented out whole, or else each setting by itself."""
    lines, result = TEXT.split("\n"), []
    for number in settings(TEXT):
        in_table = result and result[-1][0] >= 0 and lines[result[-1][0]].startswith("#[")
        if in_table and "" not in lines[result[-1][0] : number]:
            result[-1].append(number)
        else:
            result.append([number])
    return result


class TestTemplate:
    def test_it_loads_as_it_is_and_changes_only_the_program(self):
        fleet = read(TEXT)
        bare = read("[run]\nbackend = 'claude'\ncommand = ['claude', '-p']")
        assert fleet == bare
        assert fleet.agent("me").run.command == ("claude", "-p")

    def test_there_are_blocks_to_uncomment(self):
        assert len(blocks()) == 67
        assert sum(len(block) > 1 for block in blocks()) == 4

    @pytest.mark.parametrize("numbers", blocks(), ids=lambda numbers: TEXT.split("\n")[numbers[0]])
    def test_each_block_is_valid_by_itself(self, numbers):
        assert isinstance(read(uncomment(numbers)), Fleet)

    def test_all_of_them_together_are_valid(self):
        assert read(uncomment(of_kind(ONLY_LOCAL))).board.github == GitHubPlace(
            repo="owner/name",
            token_file="~/.config/gtrun/github.token",  # noqa: S106 - where one is
        )
        fleet = read(uncomment(of_kind(ONLY_ON_GITHUB)))
        assert fleet.board.path == "/home/ops/.local/share/gtrun/board/board.db"
        assert fleet.agent("alice").run.command == ("codex", "exec", "-")
        assert list(fleet.agents) == ["me", "alice", "bob"]
        assert fleet.agent("bob").run.limits.memory_max == 8 << 30
        assert fleet.agent("bob").run.limits.tasks_max == 512

    def test_what_is_shown_as_a_default_is_one(self):
        default = read("").agent("me").run
        shown = read(
            uncomment([n for n in settings(TEXT) if TEXT.split("\n")[n].startswith(("#stop", "#keep", "#path"))])
        )
        run = shown.agent("me").run
        assert (run.stop_timeout, run.keep, run.path) == (default.stop_timeout, default.keep, default.path)
        labels = read(uncomment([n for n in settings(TEXT) if TEXT.split("\n")[n].startswith("#terminal")]))
        assert labels.board == read("").board
        names = ("#settle", "#backoff", "#attempts", "#every")
        plugins = read(
            uncomment(
                [n for n in settings(TEXT) if TEXT.split("\n")[n].startswith(("#[plugins", '#time_limit = "10m'))]
            )
        )
        assert plugins.plugins == {"disk": PluginProfile()}
        schedule = read(uncomment([n for n in settings(TEXT) if TEXT.split("\n")[n].startswith(names)])).schedule
        assert schedule == read("").schedule

    def test_every_key_there_is_appears_and_has_a_line_of_explanation(self):
        lines = TEXT.split("\n")
        for key in every_key(FLEET):
            if key in {"rigs", "agents", "board", "run", "claim", "limits", "sandbox", "schedule", "notify", "plugins"}:
                continue
            found = [n for n, line in enumerate(lines) if re.match(rf"#?{key} = |#.*[ {{]{key} = ", line)]
            assert found, key
            assert lines[found[0] - 1].startswith("# "), key

    def test_no_line_is_wider_than_a_terminal_of_120(self):
        assert max(map(len, TEXT.split("\n"))) <= 120


def every_key(shape) -> set[str]:
    if isinstance(shape, Named):
        return every_key(shape.each)
    if isinstance(shape, Keys):
        return set(shape.known).union(*map(every_key, shape.known.values()))
    return set()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own, nothing in /etc, and a umask that lets a group write."""
    monkeypatch.setattr("gtrun.config.source.SYSTEM", tmp_path / "etc/gtrun/fleet.toml")
    monkeypatch.setattr("gtrun.config.template.SYSTEM", tmp_path / "etc/gtrun/fleet.toml")
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), os.getegid(), "", str(tmp_path / "home"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    before = os.umask(0o002)
    yield tmp_path / "home"
    os.umask(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run(*arguments: str, environment: dict[str, str] | None = None, config: Path | None = None) -> None:
    invocation = Invocation(environment or {}, config)
    typer.main.get_command(app).main(list(arguments), obj=invocation, standalone_mode=False)


class TestWhere:
    def test_root_writes_the_one_for_the_whole_box_and_others_their_own(self, home, tmp_path):
        assert target({}, None, 0) == tmp_path / "etc/gtrun/fleet.toml"
        assert target({}, None, 1000) == home / ".config/gtrun/fleet.toml"
        assert target({"XDG_CONFIG_HOME": "/x"}, None, 1000) == Path("/x/gtrun/fleet.toml")

    @pytest.mark.parametrize("uid", [0, 1000])
    def test_a_file_that_was_named_comes_first(self, uid):
        assert target({"GTRUN_CONFIG": "/v.toml"}, None, uid) == Path("/v.toml")
        assert target({"GTRUN_CONFIG": "/v.toml"}, Path("/c.toml"), uid) == Path("/c.toml")

    def test_without_a_path_it_is_the_one_that_counts_from_then_on(self, capsys):
        run()
        output = capsys.readouterr()
        assert load({}, None).source == output.out.rstrip("\n")
        assert "gtrun: next: set the command in [run], then: gtrun doctor" in output.err.split("\n")
        assert "--config" not in output.err

    def test_a_path_elsewhere_is_said_not_to_count(self, tmp_path, capsys):
        path = tmp_path / "else.toml"
        run(str(path))
        output = capsys.readouterr()
        assert output.out == f"{path}\n"
        assert f"use --config {path} or GTRUN_CONFIG={path}" in output.err

    def test_a_relative_path_is_printed_in_full(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        run("x.toml")
        assert capsys.readouterr().out == f"{tmp_path}/x.toml\n"


class TestWriting:
    def test_the_file_and_its_new_folders_are_nobody_elses_to_write(self, tmp_path):
        path = tmp_path / "a/b/fleet.toml"
        run(str(path))
        assert path.read_bytes() == template()
        assert stat.S_IMODE(path.stat().st_mode) == MODE
        for folder in path.parent, path.parent.parent:
            assert stat.S_IMODE(folder.stat().st_mode) == MODE | (0o111 if MODE == 0o644 else 0o100)
        assert names(path.parent) == ["fleet.toml"]
        assert load({}, path).agent("me").run.command == ("claude", "-p")

    @pytest.mark.parametrize("there", ["file", "dangling link", "folder"])
    def test_nothing_is_overwritten(self, tmp_path, capsys, there):
        path = tmp_path / "fleet.toml"
        match there:
            case "file":
                path.write_text("mine")
            case "folder":
                path.mkdir()
            case "dangling link":
                path.symlink_to("nowhere")
        before = names(tmp_path)
        with pytest.raises(GtrunError, match=f"{path} exists") as caught:
            run(str(path))
        assert caught.value.code == 1
        assert "--force" in caught.value.hint
        assert names(tmp_path) == before
        assert there != "file" or path.read_text() == "mine"
        assert capsys.readouterr().out == ""

    def test_somebody_who_was_faster_is_not_overwritten(self, tmp_path, monkeypatch):
        path = tmp_path / "fleet.toml"
        path.write_text("faster")
        monkeypatch.setattr(os.path, "lexists", lambda _: False)
        with pytest.raises(GtrunError, match=f"{path} exists"):
            run(str(path))
        assert path.read_text() == "faster"
        assert names(tmp_path) == ["fleet.toml"]

    def test_force_keeps_what_was_there_and_what_was_kept_before(self, tmp_path, capsys):
        path = tmp_path / "fleet.toml"
        for text in "one", "two":
            path.write_text(text)
            run("--force", str(path))
            assert path.read_bytes() == template()
        run("--force", str(path))  # nothing of anybody's is lost, so nothing is kept
        assert names(tmp_path) == ["fleet.toml", "fleet.toml.bak", "fleet.toml.bak2"]
        assert (tmp_path / "fleet.toml.bak").read_text() == "one"
        assert (tmp_path / "fleet.toml.bak2").read_text() == "two"
        assert f"gtrun: the file that was there is kept as {path}.bak2\n" in capsys.readouterr().err

    def test_force_without_a_file_just_writes(self, tmp_path):
        run("--force", str(tmp_path / "fleet.toml"))
        assert names(tmp_path) == ["fleet.toml"]

    def test_a_link_stays_a_link(self, tmp_path):
        real = tmp_path / "dots/fleet.toml"
        real.parent.mkdir(0o755)
        real.write_text("mine")
        link = tmp_path / "fleet.toml"
        link.symlink_to("dots/fleet.toml")
        run("--force", str(link))
        assert link.is_symlink()
        assert real.read_bytes() == template()
        assert (tmp_path / "dots/fleet.toml.bak").read_text() == "mine"

    def test_what_cannot_be_written_is_said(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(
            GtrunError, match=r"^cannot write .*/file/fleet.toml: (Not a directory|File exists): "
        ) as caught:
            run(str(tmp_path / "file/fleet.toml"))
        assert caught.value.code == 1

    def test_a_folder_that_a_group_can_write_is_said_at_once(self, tmp_path, capsys):
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o775)
        path = shared / "fleet.toml"
        run(str(path))
        errors = capsys.readouterr().err
        assert f"gtrun: it cannot be used yet: {shared} can be written by its group (mode 0775)" in errors
        assert f"gtrun: hint: chmod go-w {shared}" in errors
        with pytest.raises(ConfigError, match="can be written by its group"):
            load({}, path)
