"""Fixtures of the scenarios: a fresh box for each, which must be clean when the scenario has passed.

Nothing here skips: without root every scenario fails and says what to type.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from harness.box import Box, BoxError, Hung, NeedsRoot
from harness.pair import OPTIONS, Pair, connect

MakeBox = Callable[..., Box]

BOXES = pytest.StashKey[list[Box]]()
PASSED = pytest.StashKey[bool]()
OUR_FRAME = re.compile(r'File "[^"]*/site-packages/gtrun/')
NOT_RUN = "NOT RUN HERE"
GRACE_SECONDS = 3.0  # for what ends by itself right after the scenario: the last process, the collected unit


@pytest.fixture
def make_box(request: pytest.FixtureRequest) -> Iterator[MakeBox]:
    """Boots boxes with other options than `box` (see `Box`); each is checked and closed like it."""
    boxes = request.node.stash.setdefault(BOXES, [])
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Box:  # noqa: ANN401 - Box names them
            try:
                made = stack.enter_context(Box(**options))
            except NeedsRoot as error:
                pytest.fail(str(error), pytrace=False)
            boxes.append(made)
            return made

        yield make
        if request.node.stash.get(PASSED, False):
            expected = {marker.name for marker in request.node.iter_markers()}
            for made in [each for each in boxes if each.keeper]:  # not those that a scenario has ended
                assert_clean(made, tracebacks="expects_traceback" in expected, opened="expects_fail_open" in expected)


@pytest.fixture
def not_run_here(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Says what a scenario could not show on this machine, at the end of the session, where nobody overlooks it."""
    return lambda what: record_property(NOT_RUN, what)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what no scenario could show here."""
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            for name, what in getattr(report, "user_properties", ()):
                if name == NOT_RUN and report.when == "call":
                    terminalreporter.write_line(f"{NOT_RUN}: {what} ({report.nodeid})", yellow=True, bold=True)


@pytest.fixture
def box(make_box: MakeBox) -> Box:
    """A fresh box with alice and bob, both lingering, and gtrun of this checkout."""
    return make_box()


@pytest.fixture
def pair(make_box: MakeBox) -> Pair:
    """Two boxes on one cable: box1 with ops and alice, box2 with ops and bob."""
    return connect(*(make_box(**options) for options in OPTIONS))


def assert_clean(box: Box, *, tracebacks: bool, opened: bool) -> None:
    """Fail if gtrun left something behind or, unless that is expected, the journal has a traceback or a guard opened.

    A guard that opens where no fault was injected lets two runs of an issue happen: our own load is no reason.
    """
    left: list[str] = []
    try:
        box.wait_for("a clean box", lambda: not left_in(box, left), timeout=GRACE_SECONDS)
    except Hung:
        pytest.fail("left behind:\n  " + "\n  ".join(left) + "\n" + told(box), pytrace=False)
    text = box.journal("-o", "cat")
    if not tracebacks and "Traceback (most recent call last)" in text and OUR_FRAME.search(text):
        pytest.fail("gtrun left a traceback in the journal\n" + told(box), pytrace=False)
    failed_open = box.journal("-o", "cat", "GTRUN_VERDICT=open")
    if failed_open and not opened:
        pytest.fail(f"a guard failed open that nobody expected to:\n{failed_open}", pytrace=False)


def left_in(box: Box, left: list[str]) -> list[str]:
    """What is left behind now, kept in `left` for the message as well."""
    left[:] = box.leftovers()
    return left


def told(box: Box) -> str:
    """What the box can say about a failure: its accounts' journal and units."""
    if not box.running:
        return "(the box is not running)"
    parts = []
    with contextlib.suppress(BoxError):
        matches = [f"_UID={account.uid}" for account in box.accounts]
        lines = box.journal("-o", "short-precise", "-n", "300", *matches)
        parts.append(f"--- journal of the accounts\n{lines}")
    for account in box.accounts:
        try:
            listed = box.run(
                "systemctl", "--user", "--no-pager", "list-units", "--all", "task-*", "plugin-*",
                account=account.name, check=None, timeout=5,
            )  # fmt: skip
        except BoxError:  # a scenario stopped that manager
            parts.append(f"--- the manager of {account.name} does not answer")
            continue
        parts.append(f"--- units of {account.name}\n{listed.out}{listed.err}")
    return "\n".join(parts)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether the scenario passed, and let its boxes speak if it did not, while they still run."""
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
        if report.failed:
            for box in item.stash.get(BOXES, []):
                report.sections.append((f"box {box.name}", told(box)))
    if report.failed:
        again = f"sudo .venv/bin/python -m pytest '{item.nodeid}'"
        report.sections.append(("replay", f"{again}\na box to look around in: sudo .venv/bin/python -m harness.box"))
    return report
