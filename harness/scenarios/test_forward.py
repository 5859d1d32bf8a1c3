"""By hand over SSH: whatever claims runs as the claim account on the claim host, whoever types it wherever."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections import Counter
from functools import partial

import pytest

from gtrun.forward import Order, pack
from gtrun.model import Origin
from harness.box import CHECKOUT, Box, Hung
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_start import BEFORE_START, answer
from harness.scene import Scene

WORKS = ["sh", "-c", "echo ready > ~/ready; exec sleep 60"]
AT = "ops@127.0.0.1"
BOX = partial(Box, accounts=["ops", "carol"])
BOARD = "/srv/gtrun/board"


@pytest.fixture
def fleet(make_box: MakeBox) -> Box:
    """A box with the claim account, which is its own only agent, and with carol."""
    return make_box(accounts=["ops", "carol"])


def people(box: Box, command: list[str] = WORKS) -> tuple[Scene, Scene]:
    """Ops, who claims, and carol, who has a key; nothing but [claim] of her own configuration is right."""
    ops, carol = Scene(box, "ops"), Scene(box, "carol")
    ops.configure(f'[claim]\nhost = "{AT}"\n[run]\ncommand = {json.dumps(command)}\n')
    carol.configure(f'[claim]\nhost = "{AT}"\n[run]\ncommand = ["false"]\n[agents.other]\n')
    box.allow_ssh("carol", "ops")
    return ops, carol


def waits_for_the_lock(ops: Scene, issue: str) -> None:
    """Wait until an attempt is on the disk without an outcome: what holds it up is the lock that the scenario holds."""
    ops.box.wait_for("an attempt", lambda: [one[0] for one in ops.attempts(issue)] == [None], timeout=20)


def hold_lock(ops: Scene) -> None:
    """Hold the claim lock until `~/release` is there."""
    ops.sh(
        "mkdir -p -m 700 ~/.local/state/gtrun; umask 077; lock=~/.local/state/gtrun/claim.lock; "
        "setsid flock $lock sh -c 'touch ~/holds; until [ -e ~/release ]; do sleep 0.05; done' >/dev/null 2>&1 &"
    )
    ops.appears(f"{ops.home}/holds")


def dispatchers(ops: Scene) -> list[str]:
    """The processes of ops that dispatch."""
    listed = ops.box.run("pgrep", "-a", "-u", ops.account, "-f", "gtrun (forwarded|dispatch)", check=None)
    return listed.out.splitlines()


def hatches_travel(box: Box) -> None:
    """Each of the three variables does there what it does here."""
    ops, carol = people(box)
    issue = ops.issue()
    carol.gtrun("dispatch", "me", issue)
    carol.gtrun("dispatch", "me", issue, check=11)
    again = carol.gtrun("dispatch", "me", issue, env={"DISPATCH_ALLOW_DUPLICATE": "1"}, check=None)
    assert again.code == 0, f"exit code {again.code}: {again.err}"
    assert f"started task-{issue}-dup1.service " in again.out
    ops.gtrun("quota", "set", "me", "--until", "2h")
    carol.gtrun("dispatch", "me", ops.issue(), check=9)
    carol.gtrun("dispatch", "me", ops.issue(), env={"DISPATCH_IGNORE_QUOTA": "1"})
    ops.gtrun("quota", "clear", "me")
    closed = ops.issue()
    ops.gtrun("board", "close", closed)
    carol.gtrun("dispatch", "me", closed, check=13)
    carol.gtrun("dispatch", "me", closed, env={"GTRUN_BACKEND": "claude"})
    ops.gtrun("stop", "--all")


def never_loops(box: Box) -> None:
    """Two configurations that point at each other: 78, which names both, and no third connection."""
    ops, carol = people(box)
    box.allow_ssh("ops", "carol")
    ops.configure('[claim]\nhost = "carol@127.0.0.1"\n[run]\ncommand = ["true"]\n')
    issue = ops.issue()
    theirs, ours = (f"{one.home}/.config/gtrun/fleet.toml" for one in (carol, ops))
    for typed in (["dispatch", "me", issue], ["show", issue], ["preflight", "claim", issue], ["reconcile"]):
        done = box.run("timeout", "15", "gtrun", *typed, account="carol", check=None)
        assert done.code == 78, f"exit code {done.code}: {done.err}"
        what, hint = done.err.splitlines()
        assert what == (
            f"gtrun: two configurations disagree: {theirs} of carol@box sent this here, to ops@box,"
            f" and {ours} here sends it to carol@127.0.0.1"
        )
        assert hint == "gtrun: hint: let [claim] host name one account of one box in both"
    assert not ops.units()


NASTY: list[str | bytes] = [
    "$HOME", "`id` $(id) a;id a|id a&&id >x <x & #x", "!! !x ^a^b %1 =ls ~ * ? [a] {a,b} @ +", "'", '"\\"\\n',
    "a\nb\tc", "", "\\", "~", "é✅", b"\xff\xfe",
]  # fmt: skip


def arguments_arrive(box: Box, shell: str = "/bin/bash") -> None:
    """What ops is told and what carol is told is the same, byte for byte, whatever the login shell makes of words."""
    people(box)
    box.run("usermod", "--shell", shell, "ops")
    for word in NASTY:
        typed: list[str | bytes] = ["gtrun", "dispatch", "--wait", word, "1"]
        here = box.run(*typed, account="ops", check=2)
        there = box.run(*typed, account="carol", check=None)
        same = (there.code, there.stdout, there.stderr) == (2, here.stdout, here.stderr)
        assert same, f"{word!r} arrived as something else: {there.err}"


def interrupted_before_the_lock(box: Box) -> None:
    """^C, a killed terminal, ^C of `ssh … gtrun dispatch` by hand: what still waits for the lock starts nothing."""
    ops, carol = people(box)
    hold_lock(ops)
    for sent, typed in (
        (signal.SIGINT, ["gtrun", "dispatch", "me"]),
        (signal.SIGKILL, ["gtrun", "dispatch", "me", "--wait"]),
        (signal.SIGINT, ["ssh", "-T", AT, "gtrun", "dispatch", "me"]),
    ):
        issue = ops.issue()
        process = box.spawn(*typed, issue, account="carol")
        waits_for_the_lock(ops, issue)
        box.signal(process, sent)
        done = answer(process)
        if typed[0] == "gtrun" and sent == signal.SIGINT:
            assert done.code == 130, f"exit code {done.code}: {done.err}"
            assert done.err.splitlines() == [
                f"gtrun: interrupted: it may have started on {AT}",
                f"gtrun: hint: ask: gtrun live {issue}",
            ]
        assert not carol.attempts(issue)[1:]
    with contextlib.suppress(Hung):
        box.wait_for("no dispatcher of ops", lambda: not dispatchers(ops), timeout=15)
    ops.sh("touch ~/release")
    box.wait_for("what comes of the lock", lambda: ops.units() or not dispatchers(ops), timeout=30)
    units = ops.units()
    assert not units, f"units are {units}"
    assert not dispatchers(ops)


def claims_meet(box: Box) -> None:
    """The timer's, carol's and those typed by ssh, ten each and all at once, for two agents: one run, 29 refusals."""
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    box.write(
        "/etc/gtrun/fleet.toml",
        f'[claim]\nhost = "root@127.0.0.1"\n[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = {json.dumps(WORKS)}\n'
        '[agents.ops]\naccount = "ops"\n[agents.carol]\naccount = "carol"\n',
    )
    box.allow_ssh("carol", "root")
    root = Scene(box, "root")
    issue = root.issue()
    again = 'while :; do ssh -T root@localhost gtrun dispatch "$0" "$1"; c=$?; [ $c = 255 ] || exit $c; sleep 0.2; done'
    typed = []
    for _ in range(5):
        for agent in ("ops", "carol"):
            typed.append(box.spawn("gtrun", "dispatch", agent, issue, account="root"))
            typed.append(box.spawn("gtrun", "dispatch", agent, issue, account="carol"))
            typed.append(box.spawn("sh", "-c", again, agent, issue, account="carol"))
    answers = [answer(process) for process in typed]
    live = [run["agent"] for run in root.asks("live", issue)["runs"]]
    codes = Counter(done.code for done in answers)
    root.gtrun("stop", "--all")
    assert len(live) == 1, f"{len(live)} runs, on {sorted(live)}"
    assert codes[0] == 1, f"exit codes {dict(codes)}"
    assert codes[11] + codes[14] == 29, (
        f"exit codes {dict(codes)}: {[done.err for done in answers if done.code not in (0, 11, 14)]}"
    )
    assert not [done.err for done in answers if "failed open" in done.err]
    by = Counter(one["by"] for one in root.asks("show", issue)["attempts"])
    assert by == {"root": 20, "carol@box": 10}, f"asked by {dict(by)}"


def claims_are_of_one_lock(box: Box) -> None:
    """Ops is held under the lock, before the start. Carol's dispatch to another agent waits for that same lock."""
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    fleet = (
        f'[claim]\nhost = "{AT}"\nwait = "60s"\n[board]\npath = "{BOARD}/board.db"\n'
        f'[run]\ncommand = {json.dumps(WORKS)}\n[agents.alice]\naccount = "alice"\nreach = "ssh"\n'
        '[agents.bob]\naccount = "bob"\nreach = "ssh"\n'
    )
    ops, carol = people(box)
    for one in (ops, carol):  # both could reach every agent
        one.configure(fleet)
        box.allow_ssh(one.account, "alice")
        box.allow_ssh(one.account, "bob")
        BEFORE_START.close(one)
    issue = ops.issue()
    first = box.spawn("gtrun", "dispatch", "alice", issue, account="ops")
    BEFORE_START.wait_for(ops)
    second = box.spawn("gtrun", "dispatch", "bob", issue, account="carol")
    box.wait_for(
        "carol's attempt", lambda: BEFORE_START.held(carol) or len(ops.asks("show", issue)["attempts"]) == 2, timeout=30
    )
    for one in (ops, carol):
        BEFORE_START.open(one)
    codes = [answer(process).code for process in (first, second)]
    live = sorted(run["agent"] for run in ops.asks("live", issue)["runs"])
    ops.gtrun("stop", "--all")
    assert live == ["alice"], f"{len(live)} runs, on {live}"
    assert codes == [0, 14], f"exit codes {codes}"


def test_a_dispatch_runs_itself_there(fleet: Box) -> None:
    """It returns when the run has started, and the run works on; the ledger tells who asked; nothing is left here."""
    ops, carol = people(fleet)
    issue = ops.issue()
    started = carol.asks("dispatch", "me", issue)
    assert (started["started"], started["unit"]) == (True, f"task-{issue}.service")
    ops.appears(f"{ops.home}/ready")
    told = carol.asks("show", issue)
    assert [(one["by"], one["outcome"]) for one in told["attempts"]] == [("carol@box", "started")]
    assert told == ops.asks("show", issue)
    assert not fleet.path(f"{carol.state}/ledger.db").exists()
    assert not fleet.path(f"{carol.state}/claim.lock").exists()
    assert carol.gtrun("preflight", "claim", issue, check=14).out.startswith(f"refused: issue {issue} is live")
    again = carol.gtrun("dispatch", "me", issue, check=11)
    assert again.err == ops.gtrun("dispatch", "me", issue, check=11).err
    ops.gtrun("stop", issue)


def test_by_hand_equals_it(fleet: Box) -> None:
    ops, carol = people(fleet)
    issue = ops.issue()
    done = fleet.run("ssh", "-T", AT, "gtrun", "dispatch", "me", issue, account="carol")
    assert done.out.startswith(f"started task-{issue}.service on me, run ")
    refused = fleet.run("ssh", "-T", AT, "gtrun", "dispatch", "me", issue, account="carol", check=11)
    assert refused.stderr == carol.gtrun("dispatch", "me", issue, check=11).stderr
    ops.gtrun("stop", issue)


def test_from_there_on_to_another_account(make_box: MakeBox) -> None:
    """Carol, by ssh to ops, by ssh to alice: no connection is left, and the claim sees both agents."""
    box = make_box(accounts=["ops", "carol", "alice"], group="gtrun")
    ops, carol = people(box)
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    ops.configure(
        f'[claim]\nhost = "{AT}"\n[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = {json.dumps(WORKS)}\n'
        '[agents.ops]\n[agents.alice]\naccount = "alice"\nreach = "ssh"\n'
    )
    box.allow_ssh("ops", "alice")
    first, second = ops.issue(), ops.issue()
    carol.gtrun("dispatch", "alice", first)
    assert Scene(box, "alice").units() == [f"task-{first}.service"]
    assert f"issue {first} is live on agent alice" in carol.gtrun("dispatch", "ops", first, check=14).err
    box.run("ssh", "-T", AT, "gtrun", "dispatch", "alice", second, account="carol")
    assert box.run("pgrep", "-a", "-u", "ops,carol", "ssh", check=1).out == ""
    ops.gtrun("stop", "--all")


def test_every_code_is_the_commands_own(fleet: Box) -> None:
    """Also a run's own 255, which is what ssh says of itself, and its signal."""
    ops, carol = people(fleet)
    for script, code in (("exit 0", 0), ("exit 255", 255), ("exit 130", 130), ("kill -KILL $$", 137)):
        ops.runs_shell(script, f'[claim]\nhost = "{AT}"')
        issue = ops.issue()
        assert carol.gtrun("dispatch", "me", issue, "--wait", check=None).code == code
    ops.idle()
    ops.configure(
        f'[claim]\nhost = "{AT}"\n[run]\ncommand = ["sleep", "60"]\n[agents.me]\n[agents.bare]\naccount = "carol"\n'
    )
    assert "nothing says how to reach it" in carol.gtrun("dispatch", "bare", ops.issue(), check=69).err
    assert "there is no agent" in carol.gtrun("dispatch", "nobody", "1", check=2).err
    assert "No such option" in carol.gtrun("dispatch", "me", "1", "--nonsense", check=2).err
    ops.configure(f'[claim]\nhost = "{AT}"\n[run]\ncommand = ["nowhere"]\n')
    assert "nowhere" in carol.gtrun("dispatch", "me", ops.issue(), check=1).err
    assert carol.gtrun("show", "999", check=1).err == "gtrun: issue 999 is not on the board\n"
    ops.configure(f'[claim]\nhost = "{AT}"\n')
    assert "has no command to run" in carol.gtrun("dispatch", "me", ops.issue(), check=78).err


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash", "/bin/tcsh"])
def test_arguments_arrive(fleet: Box, shell: str) -> None:
    arguments_arrive(fleet, shell)


def test_what_start_up_files_print_is_left_out(fleet: Box) -> None:
    ops, carol = people(fleet)
    noise = "echo Welcome; echo hello >&2; printf 'no line end'; printf 'none here either' >&2\n"
    before = fleet.path(f"{ops.home}/.bashrc").read_text()
    fleet.write(f"{ops.home}/.bashrc", noise + before, owner="ops")
    issue = ops.issue()
    done = carol.gtrun("dispatch", "me", issue, "--json")
    assert (json.loads(done.out)["kind"], done.err) == ("dispatch", "")
    ops.gtrun("stop", issue)
    fleet.write(f"{ops.home}/.bashrc", "echo Maintenance >&2; exit 3\n", owner="ops")
    done = carol.gtrun("dispatch", "me", issue, check=69)
    assert done.err.splitlines() == [
        f"gtrun: {AT} ended with 3 before gtrun began there: Maintenance",
        f"gtrun: hint: look what it says to: ssh {AT} gtrun info",
    ]


def test_hatches_travel(fleet: Box) -> None:
    hatches_travel(fleet)


def test_never_loops(fleet: Box) -> None:
    never_loops(fleet)


def test_interrupted_before_the_lock(fleet: Box) -> None:
    interrupted_before_the_lock(fleet)


def test_interrupted_after_the_start(fleet: Box) -> None:
    """The run goes on, and its own end is told by `show`."""
    ops, carol = people(fleet)
    issue = ops.issue()
    process = fleet.spawn("gtrun", "dispatch", "me", issue, "--wait", account="carol")
    ops.appears(f"{ops.home}/ready", timeout=20)
    fleet.wait_for("the outcome", lambda: carol.attempts(issue)[0][0] == "started", timeout=20)
    fleet.signal(process, signal.SIGINT)
    done = answer(process)
    assert (done.code, done.out.split(",")[0]) == (130, f"started task-{issue}.service on me")
    assert done.err.startswith(
        f"gtrun: interrupted: it may have started on {AT}\ngtrun: hint: ask: gtrun live {issue}\n"
    )
    assert ops.units() == [f"task-{issue}.service"]
    ops.gtrun("stop", issue)


def test_claims_are_of_one_lock(make_box: MakeBox) -> None:
    box = make_box(accounts=["ops", "carol", "alice", "bob"], group="gtrun")
    prepare(box, [BEFORE_START.edit])
    claims_are_of_one_lock(box)


def test_claims_meet(make_box: MakeBox) -> None:
    claims_meet(make_box(accounts=["ops", "carol"], group="gtrun"))


def test_the_same_name_on_another_machine_forwards(fleet: Box) -> None:
    """Ops on a laptop, told from ops on the claim host by the machine ID."""
    ops, _ = people(fleet)
    fleet.allow_ssh("ops", "ops")
    machine = fleet.path("/etc/machine-id").read_text().strip()
    claim = f'[claim]\nhost = "{AT}"\nmachine_id = "{machine}"\n'
    ops.configure(f"{claim}[run]\ncommand = {json.dumps(WORKS)}\n")
    issue = ops.issue()
    laptop = (
        "echo 0123456789abcdef0123456789abcdef >/run/laptop-id; mount --bind /run/laptop-id /etc/machine-id; "
        'hostname laptop; exec setpriv --reuid=ops --regid=ops --init-groups env HOME=/home/ops "$@"'
    )
    there = ["unshare", "--mount", "--uts", "sh", "-euc", laptop, "-"]
    fleet.run(*there, "gtrun", "dispatch", "me", issue)
    assert [one["by"] for one in ops.asks("show", issue)["attempts"]] == ["ops@laptop"]
    ops.configure(claim.replace(machine, "f" * 32) + '[run]\ncommand = ["true"]\n')
    done = ops.gtrun("dispatch", "me", issue, check=78)
    assert done.err.splitlines()[1] == (
        "gtrun: hint: let [claim] host name one account of one box in both;"
        f' if {AT} is this box, add to [claim] in both: machine_id = "{machine}"'
    )
    ops.configure(f"{claim}[run]\ncommand = {json.dumps(WORKS)}\n")
    ops.gtrun("stop", issue)


def test_what_keeps_it_from_getting_there(fleet: Box) -> None:
    """No key, no host key, no gtrun, no sshd: one line that says so and one that says what to do."""
    ops, carol = people(fleet)
    issue = ops.issue()

    def told(code: int) -> list[str]:
        return carol.gtrun("dispatch", "me", issue, check=code).err.splitlines()

    carol.configure(f'[claim]\nhost = "{AT}"\ngtrun = "/opt/nowhere/gtrun"\n')
    what, hint = told(78)
    assert re.fullmatch(rf"gtrun: {AT} cannot execute /opt/nowhere/gtrun: .*No such file or directory", what), what
    assert hint.startswith("gtrun: hint: install gtrun there, or set gtrun in [claim] of ")
    carol.configure('[claim]\nhost = "root@127.0.0.1"\n')
    what, hint = told(69)
    assert what.startswith("gtrun: root@127.0.0.1 is not to be reached over SSH: root@127.0.0.1: Permission denied"), (
        what
    )
    assert hint.endswith("ssh-copy-id root@127.0.0.1")
    carol.configure(f'[claim]\nhost = "{AT}"\n')
    known = fleet.path("/etc/ssh/ssh_known_hosts").read_text()
    fleet.write("/etc/ssh/ssh_known_hosts", "")
    what, hint = told(69)
    assert what == f"gtrun: {AT} is not to be reached over SSH: Host key verification failed."
    assert hint.endswith(f"connect once by hand: ssh {AT}")
    fleet.write("/etc/ssh/ssh_known_hosts", known)
    fleet.run("systemctl", "stop", "ssh.service")
    said, what, hint = told(69)
    assert said == f"gtrun: {AT} lets nobody in, trying again for 5 s"
    assert what.startswith(
        f"gtrun: {AT} is not to be reached over SSH: ssh: connect to host 127.0.0.1 port 22: Conn"
    ), what
    assert hint == f"gtrun: hint: is sshd running there? Try: ssh -T {AT} gtrun info"
    fleet.run("systemctl", "start", "ssh.service")
    assert not ops.attempts(issue)


def test_a_key_can_be_held_to_it(fleet: Box) -> None:
    """The forced command of docs/ssh.md: what gtrun forwards passes, nothing else does."""
    ops, carol = people(fleet)
    issue = ops.issue()
    (forced,) = re.findall(r"`(restrict,command=.gtrun forwarded .*)`", (CHECKOUT / "docs/ssh.md").read_text())
    keys = fleet.path(f"{ops.home}/.ssh/authorized_keys")
    fleet.write(f"{ops.home}/.ssh/authorized_keys", f"{forced} {keys.read_text()}", owner="ops", mode=0o600)
    carol.gtrun("dispatch", "me", issue)
    carol.gtrun("dispatch", "me", issue, check=11)
    for typed in ("id", "gtrun board list", "x; id", "'$(id)'", "gtrun run x"):
        done = fleet.run("ssh", "-T", AT, typed, account="carol", check=2)
        assert (done.out, done.err.splitlines()[0]) == ("", "gtrun: what gtrun forwards is for gtrun alone"), typed
    ops.gtrun("stop", issue)


def test_who_asked_is_untrusted(fleet: Box) -> None:
    ops, _ = people(fleet)
    issue = ops.issue()
    origin = Origin(by="\x1b[31m" + "x" * 5000, source="")
    payload = pack(Order(arguments=("dispatch", "me", issue), environment={}, origin=origin))
    fleet.run("ssh", "-T", AT, "gtrun", "forwarded", payload, account="carol")
    (attempt,) = ops.asks("show", issue)["attempts"]
    assert attempt["by"] == "\\x1b[31m" + "x" * 91 + "…"
    ops.gtrun("stop", issue)


def test_the_original_spelling(fleet: Box) -> None:
    """`scripts/dispatch.sh` and `task-runner.sh`."""
    ops, _ = people(fleet)
    for name in ("dispatch.sh", "task-runner.sh"):
        fleet.write(f"/usr/local/bin/{name}", (CHECKOUT / "scripts" / name).read_bytes(), mode=0o755)
    issue = ops.issue()

    def typed(*words: str, code: int = 0) -> str:
        return fleet.run("dispatch.sh", *words, account="ops", check=code).out

    assert typed("--live-units", issue, code=1) == ""
    assert typed("--preflight-duplicate", "me", issue) == typed("--preflight-quota", "me") == "pass\n"
    assert typed("me", issue).startswith(f"started task-{issue}.service")
    assert f"task-{issue}.service" in typed("--live-units", issue)
    assert typed("--preflight-duplicate", "me", issue, code=11).startswith("refused: ")
    ops.gtrun("quota", "set", "me", "--until", "2h")
    assert typed("--preflight-quota", "me", code=9).startswith("refused: ")
    assert typed("--quota-dark") == "me\n"
    assert typed("--quota") == ops.gtrun("quota").out
    for wrong in ((), ("--help",), ("--preflight-quota",), ("--live-units",), ("--preflight-duplicate", "me")):
        done = fleet.run("dispatch.sh", *wrong, account="ops", check=2)
        assert done.err.startswith("dispatch.sh AGENT ISSUE ")
    assert "gtrun dispatch AGENT ISSUE" in fleet.run("task-runner.sh", account="ops", check=2).err
    ops.gtrun("stop", issue)


MUTANTS = [
    Mutant(
        "forwarded hatch dropped",
        [
            Edit(
                "forward.py",
                "    hatches = {name: environment[name] for name in HATCHES if name in environment}",
                "    hatches: dict[str, str] = {}",
            )
        ],
        hatches_travel,
        r"exit code 11: gtrun: refused: task-1\.service is already live",
        boot=BOX,
    ),
    Mutant(
        "loop guard dropped",
        [Edit("cli/forwarding.py", "    if invocation.origin is not None:", "    if False:")],
        never_loops,
        r"exit code 124: ",
        boot=BOX,
    ),
    Mutant(
        "payload passed as words through the shell",
        [
            Edit(
                "forward.py",
                'over_ssh(host, [claim.gtrun, "forwarded", payload], connect_timeout=_CONNECT_WAIT)',
                "[*over_ssh(host, [], connect_timeout=10)[:-1],"
                " f\"n={nonce_of(payload)}; echo gtrun-$n begin | tee /dev/stderr; gtrun {' '.join(arguments)}; c=$?;"
                ' echo gtrun-$n end $c | tee /dev/stderr"]',
            )
        ],
        arguments_arrive,
        r"'\$HOME' arrived as something else: gtrun: there is no agent '/home/ops'",
        boot=BOX,
    ),
    Mutant(
        "another account takes a lock of its own",
        [
            Edit(
                "forward.py",
                "    if account != wanted:\n        return False",
                "    if account != wanted:\n        return True",
            )
        ],
        claims_are_of_one_lock,
        r"2 runs, on \['alice', 'bob'\]",
        setup=[BEFORE_START.edit],
        boot=partial(Box, accounts=["ops", "carol", "alice", "bob"], group="gtrun"),
    ),
    Mutant(
        "hang-up not noticed",
        [Edit("cli/dispatching.py", "    if invocation.is_remote:", "    if False:")],
        interrupted_before_the_lock,
        r"units are \['task-1\.service'",
        boot=BOX,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
