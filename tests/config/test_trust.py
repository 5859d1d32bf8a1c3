"""What somebody else could have written is not obeyed."""

import os
import stat
from pathlib import Path

import pytest

from gtrun.config.trust import LARGEST, check_executed, read_trusted, weakness
from gtrun.errors import ConfigError

ME = os.geteuid()
OTHER = 54_321


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "config"
    folder.mkdir(mode=0o755)
    file = folder / "fleet.toml"
    file.write_bytes(b"content")
    file.chmod(0o644)
    return file


def refusal(path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_trusted(path, ME)
    assert caught.value.code == 78
    assert caught.value.message.isprintable()
    return caught.value


@pytest.mark.parametrize(
    ("owner", "mode", "fault"),
    [
        (ME, stat.S_IFREG | 0o600, ""),
        (0, stat.S_IFREG | 0o644, ""),
        (ME, stat.S_IFREG | 0o755, ""),
        (ME, stat.S_IFDIR | 0o755, ""),
        (0, stat.S_IFDIR | 0o1777, ""),
        (ME, stat.S_IFLNK | 0o777, ""),
        (OTHER, stat.S_IFREG | 0o600, f"belongs to user ID {OTHER}, not to root or user ID {ME}"),
        (OTHER, stat.S_IFDIR | 0o1755, f"belongs to user ID {OTHER}, not to root or user ID {ME}"),
        (OTHER, stat.S_IFLNK | 0o777, f"belongs to user ID {OTHER}, not to root or user ID {ME}"),
        (ME, stat.S_IFREG | 0o620, "can be written by its group (mode 0620)"),
        (ME, stat.S_IFREG | 0o602, "can be written by anybody (mode 0602)"),
        (0, stat.S_IFREG | 0o1666, "can be written by anybody (mode 1666)"),
        (ME, stat.S_IFDIR | 0o2775, "can be written by its group (mode 2775)"),
        (0, stat.S_IFDIR | 0o777, "can be written by anybody (mode 0777)"),
    ],
)
def test_who_could_change_it(owner, mode, fault):
    assert weakness(owner, mode, ME) == fault


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o444])
def test_a_file_of_the_caller_is_read(file, mode):
    file.chmod(mode)
    assert read_trusted(file, ME) == b"content"


@pytest.mark.parametrize(("mode", "who"), [(0o664, "its group"), (0o646, "anybody"), (0o666, "anybody")])
def test_a_file_that_others_can_write(file, mode, who):
    file.chmod(mode)
    error = refusal(file)
    assert error.message == f"{file} can be written by {who} (mode {mode:04o})"
    assert error.hint == f"chmod go-w {file} (or move the file)"


@pytest.mark.parametrize(("mode", "who"), [(0o775, "its group"), (0o757, "anybody"), (0o2775, "its group")])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_folder_that_others_can_write(file, mode, who, levels):
    folder = file.parents[levels - 1]
    before = folder.stat().st_mode
    folder.chmod(mode)
    try:
        error = refusal(file)
    finally:
        folder.chmod(before & 0o7777)
    assert error.message == f"{folder} can be written by {who} (mode {mode:04o}), on the way to {file}"
    assert error.hint == f"chmod go-w {folder} (or move the file)"


def test_a_sticky_folder_is_no_weakness(file):
    file.parent.chmod(0o1777)
    assert read_trusted(file, ME) == b"content"


def test_the_hint_can_be_pasted_into_a_shell(tmp_path):
    file = tmp_path / "a b;c"
    file.write_bytes(b"")
    file.chmod(0o666)
    assert refusal(file).hint.startswith(f"chmod go-w '{file}'")


class TestLinks:
    @pytest.mark.parametrize("target", ["absolute", "relative", "chain", "folder"])
    def test_a_link_is_followed(self, file, tmp_path, target):
        link = tmp_path / "link.toml"
        match target:
            case "absolute":
                link.symlink_to(file)
            case "relative":
                link.symlink_to("../" + f"{tmp_path.name}/./config/fleet.toml")
            case "chain":
                (tmp_path / "middle").symlink_to("config/fleet.toml")
                link.symlink_to("middle")
            case "folder":
                (tmp_path / "dots").symlink_to("config")
                link = tmp_path / "dots/../config/fleet.toml"
        assert read_trusted(link, ME) == b"content"

    @pytest.mark.parametrize("weak", ["file", "folder"])
    def test_the_real_file_and_its_folder_are_what_counts(self, file, tmp_path, weak):
        link = tmp_path / "link.toml"
        link.symlink_to(file)
        place = file if weak == "file" else file.parent
        place.chmod(0o777)
        assert refusal(link).message == f"{place} can be written by anybody (mode 0777), on the way to {link}"

    def test_so_is_the_folder_that_the_link_is_in(self, file, tmp_path):
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "link.toml").symlink_to(file)
        assert refusal(shared / "link.toml").message.startswith(f"{shared} can be written by anybody")

    def test_and_every_folder_on_the_way_of_a_chain(self, file, tmp_path):
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "middle").symlink_to(file)
        link = tmp_path / "link.toml"
        link.symlink_to("shared/middle")
        assert refusal(link).message.startswith(f"{shared} can be written by anybody")

    def test_dot_dot_after_a_link_goes_where_the_kernel_goes(self, tmp_path):
        elsewhere = tmp_path / "elsewhere"
        (elsewhere / "deep").mkdir(parents=True)
        elsewhere.chmod(0o777)
        (tmp_path / "to-deep").symlink_to("elsewhere/deep")
        (elsewhere / "fleet.toml").write_bytes(b"forged")
        (tmp_path / "fleet.toml").write_bytes(b"mine")
        assert refusal(tmp_path / "to-deep/../fleet.toml").message.startswith(f"{elsewhere} can be written")

    def test_a_loop_is_an_error(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        assert "Too many levels of symbolic links" in refusal(tmp_path / "a").message


@pytest.mark.skipif(ME != 0, reason="only root can give a file away")
class TestOwners:
    @pytest.mark.parametrize("what", ["file", "folder", "link"])
    def test_what_belongs_to_another_account(self, file, tmp_path, what):
        link = tmp_path / "link.toml"
        link.symlink_to(file)
        place = {"file": file, "folder": file.parent, "link": link}[what]
        os.chown(place, OTHER, -1, follow_symlinks=False)
        error = refusal(link)
        assert error.message.startswith(f"{place} belongs to user ID {OTHER}, not to root or user ID 0")
        assert error.hint == f"chown {'-h ' if what == 'link' else ''}0 {place} (or move the file)"

    def test_a_caller_reads_its_own_and_those_of_root(self, file):
        assert read_trusted(file, OTHER) == b"content"
        os.chown(file, OTHER, -1)
        assert read_trusted(file, OTHER) == b"content"


def test_a_file_of_somebody_else(file):
    if ME == 0:
        os.chown(file, OTHER, -1)
        owner, reader = OTHER, 0
    else:
        owner, reader = ME, OTHER
    with pytest.raises(ConfigError, match=f"{file} belongs to user ID {owner}, not to root or user ID {reader}"):
        read_trusted(file, reader)


def test_a_file_that_is_replaced_under_our_eyes(file, monkeypatch):
    real_open = os.open

    def open_and_be_replaced(path, flags):
        descriptor = real_open(path, flags)
        (file.parent / "new").write_bytes(b"other")
        (file.parent / "new").rename(file)
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_be_replaced)
        error = refusal(file)
    assert error.message == f"{file} was replaced while it was being read"


def test_a_fifo_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert refusal(tmp_path / "fifo").message.endswith("is not a regular file")


@pytest.mark.parametrize("path", ["", "/dev/null"])
def test_what_is_no_file(tmp_path, path):
    assert refusal(tmp_path / path).message.endswith("is not a regular file")


def test_a_missing_file(tmp_path):
    missing = tmp_path / "missing"
    assert refusal(missing).message == f"cannot read the configuration: No such file or directory: {missing}"


@pytest.mark.parametrize(("size", "fits"), [(LARGEST, True), (LARGEST + 1, False)])
def test_the_size_limit(file, size, fits):
    os.truncate(file, size)
    if fits:
        assert len(read_trusted(file, ME)) == size
    else:
        assert refusal(file).message.endswith("is larger than 1 MiB: that is no fleet.toml")


def test_no_descriptor_is_left_open(file):
    before = set(Path("/proc/self/fd").iterdir())
    read_trusted(file, ME)
    file.chmod(0o666)
    refusal(file)
    assert set(Path("/proc/self/fd").iterdir()) == before


class TestExecuted:
    @pytest.fixture
    def installed(self, tmp_path):
        folder = tmp_path / "opt/gtrun"
        folder.mkdir(parents=True)
        (folder / "python").symlink_to("/usr/bin/env")
        return folder

    def test_what_is_ours_is_fine(self, installed):
        check_executed([installed / "python", installed, installed / "none", installed / "python/none"], os.geteuid())

    @pytest.mark.parametrize("weak", [".", "..", "../.."])
    def test_a_folder_on_the_way_that_others_may_write(self, installed, weak):
        place = (installed / weak).resolve()
        place.chmod(0o775)
        with pytest.raises(ConfigError, match=f"^{place} can be written by its group .*: with it,") as caught:
            check_executed([Path("/"), installed], os.geteuid())
        assert caught.value.code == 78
        assert caught.value.hint.startswith(f"chmod go-w {place}, or install")
