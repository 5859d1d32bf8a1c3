"""`gtrun enter`: ExecStart of a unit with a sandbox. Inside, it becomes the agent program that the runner has prepared.

It does not touch a board or a file of the account: it may see none. See `gtrun.runner.handover`.
"""

import os
import time

from gtrun.errors import GtrunError, LaunchFailed
from gtrun.runner import handover
from gtrun.runner.become import NOT_EXECUTABLE, NOT_FOUND, armed, become, complained, resolved_here, why_not
from gtrun.runner.update import go_on_inside
from gtrun.state import record as records
from gtrun.state.facts import Entered, GaveUp


def enter() -> int:
    """Become the agent program, inside its sandbox. Returns only if nothing is executed."""
    handed, record = handover.take(os.environ)
    go_on_inside(handed.release)
    handover.keep()
    records.append_through(record, Entered(time.time()))
    if handed.code is not None:
        return handed.code
    inherited = {key: value for key, value in os.environ.items() if key not in handover.PASSED_BY}
    try:
        program = resolved_here(handed.run, handed.run_id, handed.prompt_file, inherited, handed.secrets)
        if program.wants_prompt_file and not os.access(handed.prompt_file, os.R_OK):
            hint = "let the prompt go to stdin, or make that folder visible with bind_read_only_paths"
            raise LaunchFailed(f"the prompt's file {handed.prompt_file} cannot be seen", hint=hint)
    except LaunchFailed as error:
        return _give_up(record, error, NOT_FOUND)
    try:
        become(armed(program, handed.run, handed.payload, record))
    except LaunchFailed as error:
        return _give_up(record, error, NOT_EXECUTABLE)
    except OSError as error:
        return _give_up(record, LaunchFailed(why_not(program, error)), NOT_EXECUTABLE)


def _give_up(record: int, error: GtrunError, code: int) -> int:
    """The sandbox may be why: outside, all of it was there."""
    message = f"inside its sandbox: {error.message}"
    records.append_through(record, GaveUp(message))
    return complained(GtrunError(message, hint=error.hint), code)
