"""What scripts/test adds to pytest: where a test was skipped, or none ran at all, the session has failed."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Also where a whole module skips itself, or tests are only collected."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus != 0 or reporter is None or hasattr(session.config, "workerinput"):
        return
    ran = any(reporter.stats.get(kind) for kind in ("passed", "xfailed"))
    if reporter.stats.get("skipped") or not ran:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line("\nFAILED: a test was skipped" if ran else "\nFAILED: no test ran")
