"""`gtrun units verify`: the unit of a run, which no file shows, as systemd's tools see it."""

from __future__ import annotations

import re

import pytest

from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill
from harness.scene import Scene
from harness.trees import root_of

PROFILE = """time_limit = "90s"
stop_timeout = "20s"
idle_limit = "20m"
slice = "agents-big.slice"
credentials = { token = "~/token", made = { command = ["echo", "x"] } }
[run.limits]
memory_max = "1G"
memory_high = "900M"
memory_swap_max = "0"
tasks_max = 99
cpu_weight = 50
cpu_quota = "150%"
io_weight = 50
oom_policy = "kill"
nofile = 4000
[run.sandbox]
protect_system = "strict"
protect_home = "read-only"
private_tmp = true
private_devices = true
private_network = true
protect_kernel_tunables = true
protect_control_groups = true
no_new_privileges = true
read_write_paths = ["~/src", "/srv"]
read_only_paths = ["/opt"]
inaccessible_paths = ["~/secret"]
bind_paths = ["~/shared"]
bind_read_only_paths = ["/usr/local"]
"""
OF_ONE_LOADING = re.compile(
    # when and how it came to be, what it does now, where it comes from, and the names of this one run
    r"Id|Names|FragmentPath|Transient|.*Timestamp(Monotonic)?|ActiveState|SubState|InvocationID|.*PID|ControlGroup"
    r"|ControlGroupId|.*USec(Monotonic)?NSec|CPUUsageNSec|Memory(Current|Available|Peak|SwapCurrent|SwapPeak)"
    r"|MemoryZSwapCurrent|EffectiveMemory.*|EffectiveTasksMax|TasksCurrent|NFileDescriptorStore|Perpetual|UnitFile.*"
    r"|Job|CanStart|CanStop|NRestarts|Exec(Main)?(Status|Code)|SyslogIdentifier|RuntimeDirectory|Description"
    r"|Documentation|NeedDaemonReload|Refs|IO(Read|Write).*|IP.*|GID|UID|TimeoutAbortUSec|ExecMainHandoff.*"
    r"|WatchdogUSec|ConditionResult|AssertResult|(Managed)?OOMKills"
    # of the timer beside it
    r"|BoundBy|Before"
)
OF_ONE_RUN = re.compile(r"(start_time|stop_time|pid|code|status)=[^;}]*|[0-9a-f]{32}\.jsonl|\.[0-9a-f]{8}\b")
LISTS = ("After", "Requires", "RequiresMountsFor", "RuntimeDirectory", "Wants", "WantsMountsFor")


def properties(scene: Scene, unit: str) -> dict[str, str]:
    """What the manager has of a unit, without what is of one loading or one run of it."""
    shown = scene.sh(f"systemctl --user show {unit}").out
    pairs = (line.split("=", 1) for line in shown.splitlines() if "=" in line)
    found = {key: OF_ONE_RUN.sub("", value) for key, value in pairs if not OF_ONE_LOADING.fullmatch(key)}
    return found | {key: " ".join(sorted(found[key].split())) for key in LISTS if key in found}


def is_what_a_dispatch_makes(box: Box) -> None:
    """The file that is verified, loaded by the manager, has every property of the unit that a dispatch starts."""
    scene = Scene(box)
    scene.sh("mkdir -p ~/src ~/secret ~/shared; (umask 077; echo s > ~/token)")
    scene.runs_shell("exec sleep 60", PROFILE)
    issue = scene.issue()
    told = scene.asks("units", "verify")
    (unit,) = told["units"]
    assert (unit["unit"], unit["file"], unit["problems"], unit["drop_ins"]) == ("task-1.service", None, [], [])
    assert 0 < unit["exposure"] < 10
    assert "\nPermissionsStartOnly=yes\n" in unit["text"]  # which a manager does not show
    assert not list(box.path("/run/user/1000").glob("gtrun-verify-*"))
    box.write(f"{scene.home}/.config/systemd/user/rendered.service", unit["text"], owner=scene.account)
    scene.sh("systemctl --user daemon-reload")
    scene.gtrun("dispatch", "me", issue)
    wanted, found = properties(scene, f"task-{issue}.service"), properties(scene, "rendered.service")
    differ = {key: (wanted.get(key), found.get(key)) for key in wanted | found if wanted.get(key) != found.get(key)}
    assert not differ, f"the unit and the file differ: {differ}"
    assert len(wanted) > 100
    scene.gtrun("stop", issue)


def test_it_is_what_a_dispatch_makes(box: Box) -> None:
    is_what_a_dispatch_makes(box)


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_it_is_what_a_dispatch_makes_on_newer_systemd(make_box: MakeBox, suite: str) -> None:
    tree = root_of(suite)  # type: ignore[arg-type]
    is_what_a_dispatch_makes(make_box(tree=tree.path, venv=tree.venv))


def test_what_is_to_mend(box: Box) -> None:
    """A drop-in over every run, one that systemd does not understand, and a unit of gtrun's with a mistake: 1."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    fine = scene.gtrun("units", "verify")
    assert re.fullmatch(r"ok   me: task-1\.service, exposure [0-9.]+ of 10\n", fine.out), fine.out
    folder = f"{scene.home}/.config/systemd/user"
    box.write(f"{folder}/task-.service.d/mine.conf", "[Service]\nExecStopPost=\nNonsense=1\n", owner=scene.account)
    box.write(f"{folder}/gtrun-sweep.service", "[Service]\nExecStart=/no/such/gtrun sweep\n", owner=scene.account)
    done = scene.gtrun("units", "verify", check=1)
    assert f"       a drop-in changes it: {folder}/task-.service.d/mine.conf\n" in done.out
    assert re.search(r"^BAD  me: gtrun-sweep\.service\n.*/no/such/gtrun is not executable", done.out, re.MULTILINE)
    assert done.err == "gtrun: 2 to mend\n"
    scene.configure('[run]\ncommand = ["sh"]\n[run.sandbox]\nread_only_paths = ["~/none"]\n')
    done = scene.gtrun("units", "verify", check=1)
    assert "BAD  me: sandbox.read_only_paths: /home/alice/none is not there" in done.out


MUTANTS = [
    Mutant(
        "a property left out of the file",
        [Edit("systemd/unit_file.py", 'frozenset({"AddRef"})', 'frozenset({"AddRef", "NoNewPrivileges"})')],
        is_what_a_dispatch_makes,
        r"the unit and the file differ: \{'NoNewPrivileges': \('yes', 'no'\)\}",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
