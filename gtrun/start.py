"""Starting the unit, and hearing what came of it."""

from gtrun.asked import Asked, refused
from gtrun.config import Agent, Fleet
from gtrun.errors import GtrunError, LaunchFailed, ManagerSilent
from gtrun.guards import Question, duplicate
from gtrun.model import ResolvedRun
from gtrun.names import UnitName
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Launched, StartReply
from gtrun.systemd import effects
from gtrun.systemd.units import UnitState, is_live

_NAME_WAIT = 2.0
_JOB_WAIT = 90.0
_RELOAD = "systemctl --user daemon-reload"


def start(fleet: Fleet, agent: Agent, asked: Asked, unit: UnitName, lock: int | None) -> StartReply:
    """Step 7: the name is given away once. Raises Refused (11) and LaunchFailed."""
    worker = asked.team.target
    override = fleet.rigs[agent.rig].gtrun
    wanted = at_agent.ToStart([override] if override else [])
    reply = worker.call(at_agent.start, wanted, lend=lock)
    if not reply.is_taken:
        return reply
    _refuse_live(asked.question, reply.occupant)
    left = worker.call(at_agent.wait_until_free, at_agent.Name(unit, _NAME_WAIT))
    if left is None:
        reply = worker.call(at_agent.start, wanted, lend=lock)
        if not reply.is_taken:
            return reply
    _refuse_live(asked.question, left or reply.occupant)
    raise _occupied(agent, unit, left or reply.occupant)


def await_start(asked: Asked, run: ResolvedRun, reply: StartReply) -> Launched:
    """Step 8. Raises LaunchFailed, and ManagerSilent for whatever keeps us from hearing what came of it."""
    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)
    try:
        return asked.team.target.call(at_agent.await_start, waited, seconds=_JOB_WAIT + 5)
    except LaunchFailed:
        raise
    except GtrunError as error:  # the manager has the unit: that is not undone
        raise ManagerSilent(
            f"{run.unit} was asked for on {run.agent}, and what came of it is not known: {error.message}",
            hint="look with `gtrun live`, then settle it with `gtrun reconcile`",
        ) from error


def warnings(launched: Launched, unit: UnitName, agent: str) -> list[str]:
    """What whoever dispatches must know of a run that was started all the same."""
    lines = [f"{key} is not in force on {agent}: {effects.why(key)}" for key in launched.not_in_force]
    lines += [f"a drop-in changes {unit} on {agent}: {path}" for path in launched.drop_ins]
    if launched.is_preparing:
        lines.append(
            f"{unit} is still preparing, so nobody has seen its sandbox yet: `gtrun ps` tells if it is in force"
        )
    return lines


def _refuse_live(question: Question, occupant: UnitState | None) -> None:
    """The name is taken: by a live unit, then another dispatcher was first. Raises Refused."""
    if occupant is not None and is_live(occupant):
        raise refused(duplicate.refusal(question.agent, question.issue, occupant))


def _occupied(agent: Agent, unit: UnitName, occupant: UnitState | None) -> LaunchFailed:
    what = occupant.said if occupant else "nothing that the manager lists"
    return LaunchFailed(
        f"the name {unit} is occupied on {agent.name} by something that is not live: {what}",
        hint=_how_to_free(unit, occupant),
    )


def _how_to_free(unit: UnitName, occupant: UnitState | None) -> str:
    if occupant is not None and occupant.load == "masked":
        return f"free it with: systemctl --user unmask {unit}"
    if occupant is not None and occupant.active == "failed":
        return f"free it with: systemctl --user reset-failed {unit}"
    if occupant is not None and "/systemd/transient/" in occupant.file:
        return f"a manager that crashed left that file; free the name with: rm {occupant.file} && {_RELOAD}"
    return f"look at it with: systemctl --user status {unit}; move its file away, then: {_RELOAD}"
