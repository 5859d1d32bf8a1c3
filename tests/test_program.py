"""What is checked before anything starts: the program, its strings, its folder, its prompt."""

import os

import pytest

from gtrun.errors import LaunchFailed
from gtrun.program import argument_space, check_strings, check_workdir, expand_home, find, read_prompt

LONGEST = 131_071


@pytest.mark.parametrize(
    ("path", "expanded"),
    [("~", "/h"), ("~/x", "/h/x"), ("~x", "~x"), ("/~/x", "/~/x"), ("", ""), ("a~", "a~")],
)
def test_home(path, expanded):
    assert expand_home(path, "/h") == expanded


def test_program_is_found_in_the_first_folder_that_has_it(tmp_path):
    folders = tuple(str(tmp_path / name) for name in ("none", "plain", "good", "later"))
    for name, mode in (("plain", 0o644), ("good", 0o755), ("later", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("")
        (tmp_path / name / "tool").chmod(mode)
    (tmp_path / "plain/folder").mkdir()
    assert find("tool", folders[2:], "/") == f"{tmp_path}/good/tool"
    assert find("good/tool", (), str(tmp_path)) == f"{tmp_path}/good/tool"
    with pytest.raises(LaunchFailed, match=r"is a folder: .*/plain/folder"):
        find("folder", folders, "/")
    with pytest.raises(LaunchFailed, match=r"is not there: looked in .*/none, .*/plain, .*/good, .*/later"):
        find("nope", folders, "/")
    with pytest.raises(LaunchFailed, match=r"is not there: looked in .*/sub/nope"):
        find("sub/nope", folders, str(tmp_path))


@pytest.mark.parametrize("text", ["", "-", "$x %h \\ ' \" ; \n \t \x1b", "é🦀", "x" * LONGEST, "é" * (LONGEST // 2)])
def test_strings_that_a_program_can_be_given(text):
    assert check_strings([text], "it") == len(text.encode()) + 9


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\0b", "it has a NUL character"),
        ("a\udcffb", "it is not valid UTF-8"),
        ("x" * (LONGEST + 1), f"it has {LONGEST + 1} bytes in one string, and the kernel takes at most {LONGEST}"),
        ("é" * (LONGEST // 2 + 1), f"it has {LONGEST + 1} bytes in one string"),
    ],
)
def test_strings_that_it_cannot_be_given(text, why):
    with pytest.raises(LaunchFailed, match=why):
        check_strings([text], "it")
    with pytest.raises(LaunchFailed, match=why.split(f"{LONGEST + 1}", maxsplit=1)[0]):
        check_strings({"A": text}, "it")


def test_the_name_of_a_variable_counts():
    assert check_strings({"A": "x" * (LONGEST - 2)}, "it") == LONGEST + 9
    with pytest.raises(LaunchFailed):
        check_strings({"A": "x" * (LONGEST - 1)}, "it")


def test_workdir(tmp_path):
    check_workdir(str(tmp_path))
    (tmp_path / "file").write_text("")
    for name, what in (("none", "there"), ("file", "a folder")):
        with pytest.raises(LaunchFailed, match=f"the workdir {tmp_path}/{name} is not {what}"):
            check_workdir(str(tmp_path / name))


def test_prompt(tmp_path):
    path = tmp_path / "prompt"
    path.write_bytes("é\r\n\n".encode())
    assert read_prompt(str(path)) == "é\r\n\n"
    path.write_bytes(b"\xff")
    with pytest.raises(LaunchFailed, match=f"the prompt {path} is not UTF-8"):
        read_prompt(str(path))
    with pytest.raises(LaunchFailed, match=f"cannot read the prompt {tmp_path}/none: No such file or directory"):
        read_prompt(f"{tmp_path}/none")


@pytest.mark.parametrize(
    ("stack", "space"),
    [
        (8 << 20, 2 << 20),  # a quarter of the usual limit
        ((1 << 64) - 1, 6 << 20),  # no limit: three quarters of the kernel's own 8 MiB
        (64 << 10, 128 << 10),  # never less than 32 pages
    ],
)
def test_the_space_for_arguments_is_the_kernels(stack, space):
    assert argument_space(stack) == space - 4096


def test_a_prompt_without_an_end_is_refused(tmp_path):
    """A FIFO that nobody writes, a device."""
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero", str(tmp_path)):
        with pytest.raises(LaunchFailed, match=r"not a regular file|Is a directory"):
            read_prompt(path)
