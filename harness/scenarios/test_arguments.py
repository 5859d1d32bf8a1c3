"""What the agent program is given: byte for byte what was asked for, or a refusal before anything starts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

NASTY = [
    "$HOME", "${HOME}", "$$", "$", "%h", "%%", "%", "\\", "\\n", "trailing\\", "'", '"', "''", "a b", "a\nb\n", "\t",
    ";", "&", "|", "<x>", "`id`", "$(id)", "*", "~", "~/x", "#", "!", "", "-", "--", "-x", "=", "@x", ":", "+", " lead",
    "\x01\x1b[31m\x7f", "\r", "ünïcødé", "日本", "🦀", "\u202e\u200b", "\ufeff", "x" * 100_000,
]  # fmt: skip
TELLS = """\
#!/usr/bin/python3 -I
import json, os, sys
told = {
    "argv": [os.fsencode(each).hex() for each in sys.argv[1:]],
    "environment": {os.fsdecode(key): os.environb[key].hex() for key in os.environb},
    "stdin": sys.stdin.buffer.read().hex(),
    "folder": os.getcwd(),
}
if os.path.exists(sys.argv[-1]):
    told["file"] = open(sys.argv[-1], "rb").read().hex()
with open(os.path.expanduser("~/told.new"), "w") as file:
    json.dump(told, file)
os.rename(os.path.expanduser("~/told.new"), os.path.expanduser("~/told"))
"""


def told(scene: Scene, issue: str) -> dict[str, Any]:
    """Dispatch, and what the program then found."""
    box = scene.box
    box.write(f"{scene.home}/tells", TELLS, owner=scene.account, mode=0o755)
    box.path(f"{scene.home}/told").unlink(missing_ok=True)
    scene.gtrun("dispatch", "me", issue, "--wait")
    document: dict[str, Any] = json.loads(scene.appears(f"{scene.home}/told"))
    return document


def configure(
    scene: Scene, arguments: list[str], prompt: str | bytes, environment: dict[str, str] | None = None
) -> None:
    """A profile for the program that tells. JSON strings are TOML's, but for a DEL."""
    scene.box.write(f"{scene.home}/prompt", prompt, owner=scene.account, mode=0o600)
    variables = "".join(f"{key} = {toml(value)}\n" for key, value in (environment or {}).items())
    command = ", ".join(map(toml, [f"{scene.home}/tells", *arguments]))
    scene.configure(f'[run]\ncommand = [{command}]\nprompt = "~/prompt"\n[run.environment]\n{variables}')


def toml(text: str) -> str:
    """A TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def test_arguments_environment_and_prompt_arrive_byte_for_byte(box: Box) -> None:
    scene = Scene(box)
    issue = scene.issue()
    doubled = [text.replace("{", "{{").replace("}", "}}") for text in NASTY]
    variables = {f"NASTY_{number}": text for number, text in enumerate(NASTY)}
    prompt = "\n".join(doubled) + "no line end"
    configure(scene, doubled, prompt, variables)
    found = told(scene, issue)
    assert [bytes.fromhex(each).decode() for each in found["argv"]] == NASTY
    assert bytes.fromhex(found["stdin"]) == ("\n".join(NASTY) + "no line end").encode()
    for name, text in variables.items():
        wanted = scene.home + text[1:] if text in {"~", "~/x"} else text  # the documented exception
        assert bytes.fromhex(found["environment"][name]).decode() == wanted, name
    assert found["folder"] == scene.home
    assert scene.results(issue) == ["success"]


def test_prompt_file_has_the_prompt_byte_for_byte(box: Box) -> None:
    scene = Scene(box)
    issue = scene.issue()
    text = "100 KB: " + "é$HOME %h\\\n" * 9_000
    configure(scene, ["{prompt_file}"], text)
    found = told(scene, issue)
    assert bytes.fromhex(found["file"]).decode() == text
    assert found["stdin"] == ""
    path = bytes.fromhex(found["argv"][0]).decode()
    assert not box.path(path).exists(), "the prompt outlives its run"


def test_hostile_title_is_one_argument(box: Box) -> None:
    """A title is somebody else's text: it arrives whole, in its place, and nowhere else."""
    scene = Scene(box)
    title = "--force \x1b]0;x\x07 \u202e {issue} %h $(id) ; '"
    issue = scene.issue(title)
    configure(scene, ["--title={title}", "--", "{title}", "{issue}"], "{title}\n{body}")
    found = told(scene, issue)
    arguments = [bytes.fromhex(each).decode() for each in found["argv"]]
    assert arguments == [f"--title={title}", "--", title, issue]
    assert bytes.fromhex(found["stdin"]).decode() == f"{title}\n"


def test_the_dispatchers_own_environment_is_not_the_runs(box: Box) -> None:
    """Neither does it arrive, nor does it refuse anything: a variable that is not UTF-8, or megabytes of them."""
    scene = Scene(box)
    issue = scene.issue()
    configure(scene, [], "")
    box.write(f"{scene.home}/tells", TELLS, owner=scene.account, mode=0o755)
    dirty = {"DIRTY": b"\xff".decode(errors="surrogateescape")} | {f"BIG_{n}": "x" * 100_000 for n in range(19)}
    done = scene.gtrun("dispatch", "me", issue, env=dirty, check=None)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    found = json.loads(scene.appears(f"{scene.home}/told"))
    assert not {"DIRTY", "BIG_1"} & set(found["environment"])
    scene.idle()
    assert scene.results(issue) == ["success"]


def refused(box: Box, arguments: list[str], prompt: str | bytes, code: int, said: str) -> None:
    """Nothing starts: one clear line, the right code, nothing left."""
    scene = Scene(box)
    issue = scene.issue()
    box.write(f"{scene.home}/tells", TELLS, owner=scene.account, mode=0o755)
    configure(scene, arguments, prompt)
    done = scene.gtrun("dispatch", "me", issue, check=None)
    assert done.code == code, f"exit code {done.code}: {done.err}"
    first, *hints = done.err.splitlines()
    assert said in first
    assert all(line.startswith("gtrun: hint: ") for line in hints), done.err
    assert not scene.units()
    assert not scene.open_records()
    configure(scene, [], "")
    assert not scene.markers(issue)
    assert not scene.runs(issue)
    assert [attempt[:2] for attempt in scene.attempts(issue)] == ([("failed", 1)] if code == 1 else [])


def prompt_too_long_for_an_argument_is_refused(box: Box) -> None:
    """The kernel's limit on one argument is met before the start, not by execve(2) in the unit."""
    refused(
        box, ["--prompt={prompt}"], "x" * 131_071, 1, "has 131080 bytes in one string, and the kernel takes at most"
    )


def test_prompt_too_long_for_an_argument_is_refused(box: Box) -> None:
    prompt_too_long_for_an_argument_is_refused(box)


@pytest.mark.parametrize(
    ("arguments", "prompt", "code", "said"),
    [
        pytest.param(["\0"], "", 78, "run.command: expected a text without NUL", id="NUL in an argument"),
        pytest.param(["x" * 131_072], "", 78, "run.command: expected at most 131071 bytes", id="one long argument"),
        pytest.param(["--prompt={prompt}"] * 17, "x" * 130_000, 1, "arguments and environment take", id="long in all"),
        pytest.param([], "a\0b", 1, "the prompt has a NUL character", id="NUL in the prompt"),
        pytest.param([], b"a\xffb", 1, "the prompt /home/alice/prompt is not UTF-8", id="prompt not UTF-8"),
        pytest.param(
            [], "{nope}", 1, "the prompt /home/alice/prompt is not usable: unknown placeholder {nope}", id="template"
        ),
    ],
)
def test_what_cannot_arrive_is_refused(
    box: Box, arguments: list[str], prompt: str | bytes, code: int, said: str
) -> None:
    refused(box, arguments, prompt, code, said)


def the_attempt_before_is_in_the_prompt(box: Box) -> None:
    """By the default prompt, and by the placeholders of a template; a program has a home where its unit has none."""
    scene = Scene(box)
    box.write(
        f"{scene.home}/.config/systemd/user/task-.service.d/no-home.conf",
        "[Service]\nUnsetEnvironment=HOME\n",
        owner=scene.account,
    )
    scene.runs_shell("cat > ~/prompt; echo $HOME; exit 3")
    issue = scene.issue()
    prompts = []
    for _ in range(2):
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        prompts.append(box.path(f"{scene.home}/prompt").read_text())
    assert scene.results(issue) == ["failed", "failed"]
    assert "The attempt before" not in prompts[0]
    said = r"open a pull request\.\nThe attempt before this one ended on .*:\n\ngtrun: \*\*finished\*\* .* failed, exit"
    assert re.search(said, prompts[1]), f"the prompt is {prompts[1]}"
    box.write(f"{scene.home}/prompt.md", "{attempt} {{{previous}}}", owner=scene.account)
    scene.runs_shell("cat > ~/prompt; exit $1", 'prompt = "~/prompt.md"')
    plan = scene.asks("dispatch", "--dry-run", "me", issue)
    assert plan["stdin"].startswith("3 {The attempt before this one ended on "), plan["stdin"]
    assert scene.asks("dispatch", "--dry-run", "me", scene.issue())["stdin"] == "1 {}"


def test_the_attempt_before_is_in_the_prompt(box: Box) -> None:
    the_attempt_before_is_in_the_prompt(box)


def test_configuration_that_is_not_utf8_is_refused(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()
    box.write(
        f"{scene.home}/.config/gtrun/fleet.toml",
        b'[run]\ncommand = ["true", "\xff"]\n',
        owner=scene.account,
        mode=0o600,
    )
    done = scene.gtrun("dispatch", "me", issue, check=78)
    assert done.err == (f"gtrun: {scene.home}/.config/gtrun/fleet.toml: line 2: expected UTF-8, found the byte 0xff\n")
    assert not scene.units()


def test_longest_argument_arrives(box: Box) -> None:
    scene = Scene(box)
    issue = scene.issue()
    configure(scene, ["x" * 131_071], "")
    found = told(scene, issue)
    assert found["argv"] == ["78" * 131_071]


MUTANTS = [
    Mutant(
        "sizes not checked before the start",
        [Edit("program.py", "        if len(raw) > STRING_MAX:", "        if False:")],
        prompt_too_long_for_an_argument_is_refused,
        r"exit code 0",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
