"""The model of the claim, claim.pml: every interleaving of it keeps its promises, and each broken one does not.

spin makes a program of the model that visits every state, or ends at the first error. There is no partial-order
reduction and no hashing of states: what it has visited is what there is.
"""

import re
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "claim.pml"
ONE_RUN = "assertion violated one_run_of_the_issue"
EVERY_FAULT = ("LOCK_TIMEOUT", "LOCK_UNUSABLE", "UNREACHABLE", "TWO_HOSTS", "HATCH")


def check(folder, *defines):
    """What the checker says, after every state has been visited or at the first error."""
    flags = [f"-D{define}" for define in defines]
    build = ["gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", "-DVECTORSZ=2048", "-o", "pan", "pan.c"]
    for command in (["spin", "-a", *flags, str(MODEL)], build):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    done = subprocess.run(["./pan", "-m100000"], cwd=folder, check=True, capture_output=True, text=True)
    assert "max search depth too small" not in done.stdout
    assert "Search not completed" not in done.stdout or "errors: 1" in done.stdout
    return re.sub(r"[()]", "", done.stdout)


def states(said):
    """How many states were visited."""
    return int(re.search(r"(\d+) states, stored", said)[1])


# what is in it, and how many states there are at least: fewer would mean that something has become impossible
WHOLE = {
    "three dispatchers, one death": (("N=3", "M=2", "KILLS=1"), 100_000),
    "two dispatchers, two deaths": (("N=2", "M=2", "KILLS=2"), 50_000),
    "three agents": (("N=3", "M=3"), 50_000),
    "agents behind ssh, one death": (("N=2", "M=2", "KILLS=1", "FAR"), 1_000_000),
    "managers die": (("N=2", "M=2", "KILLS=1", "MANAGER_DIES"), 1_000_000),
    "every fault of the lock, and the hatch": (
        ("N=2", "M=2", "LOCK_TIMEOUT", "TWO_HOSTS", "HATCH"),
        50_000,
    ),
    "unreachable agents": (("N=2", "M=2", "UNREACHABLE", "LOCK_UNUSABLE"), 50_000),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the checker says of each whole model."""
    return {name: check(tmp_path_factory.mktemp("model"), *defines) for name, (defines, _) in WHOLE.items()}


@pytest.mark.parametrize("name", WHOLE)
def test_every_interleaving(name, whole):
    assert "errors: 0" in whole[name], whole[name]
    assert states(whole[name]) >= WHOLE[name][1]


def test_no_step_is_idle(whole):
    """Every statement is executed in one of the models. The inside of an atomic step is where nobody is killed."""

    def idle(said):
        steps = re.findall(r'pml:(\d+), state \d+, "(.*)"', said)
        return {step for step in steps if step[1] not in {"-end-", "kill_dispatcher[d]", "kill_worker[d]"}}

    assert not set.intersection(*map(idle, whole.values()))


# what is broken, with how many dispatchers and what else, and what fails then
MUTANTS = [
    ("NO_LOCK", ("N=2",), ONE_RUN),
    ("EARLY_RELEASE", ("N=2",), ONE_RUN),
    ("IGNORES_AN_AGENT", ("N=3",), ONE_RUN),
    ("COUNTS_ACTIVE_ONLY", ("N=3",), ONE_RUN),
    ("NOT_LENT", ("N=3", "KILLS=1"), ONE_RUN),
    ("NOT_LENT", ("N=2", "KILLS=1", "FAR"), ONE_RUN),
    ("NO_LEASE", ("N=2", "FAR"), ONE_RUN),
    ("BUS_REORDERS", ("N=3", "KILLS=1"), ONE_RUN),
    ("DEATH_KEEPS_LOCK", ("N=3", "KILLS=1"), "invalid end state"),
    ("NAME_IS_FREE", ("N=2", "LOCK_TIMEOUT"), "assertion violated one_unit_of_a_name"),
    # a fault of the table, without the excuse: each of them is enough for two runs
    *((fault, ("N=2", "FAULTS_EXCUSE_NOTHING"), ONE_RUN) for fault in EVERY_FAULT),
]


NAMES = [" ".join((name, *more)) for name, more, _ in MUTANTS]


@pytest.mark.parametrize(("mutant", "more", "dies_of"), MUTANTS, ids=NAMES)
def test_broken(mutant, more, dies_of, tmp_path):
    said = check(tmp_path, "M=2", mutant, *more)
    assert "errors: 1" in said, said
    assert dies_of in said, said
