"""What `gtrun dispatch` does, without its option parser."""

from collections.abc import Callable, Sequence

from gtrun.account import Account
from gtrun.cli.forwarding import belongs_elsewhere, run_there
from gtrun.cli.invocation import Invocation
from gtrun.cli.output import document, say
from gtrun.config import Fleet
from gtrun.dispatch import Started, rehearse
from gtrun.dispatch import dispatch as start_run
from gtrun.errors import GtrunError
from gtrun.exits import Exit
from gtrun.hangup import interrupt_on_hangup
from gtrun.markers import outcome
from gtrun.model import Run
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Prepared
from gtrun.request import Request
from gtrun.survey import route_of
from gtrun.text import plain_lines


def dispatch(
    invocation: Invocation,
    target: str,
    issue: str,
    *,
    dry_run: bool = False,
    wait: bool = False,
    as_json: bool = False,
    has_started_up: Callable[[], None] | None = None,
) -> int:
    """Dispatch, say what was started, and with `wait` return the run's own code.

    `has_started_up` is told when all that is left to do waits for others now and then.
    """
    # forked first: it imports the D-Bus binding while the configuration, the board and the ledger are read here
    with Worker.start() as worker:
        fleet = invocation.fleet()
        key = fleet.issue_key(issue)
        request = Request(target, key, invocation.caller(), invocation.environment, invocation.by())
        if has_started_up is not None:
            has_started_up()
        if belongs_elsewhere(invocation, fleet):
            worker.close()
            return run_there(invocation, fleet, starts=f"gtrun live {key}")
        end_with_connection(invocation)
        if dry_run:
            _show_plan(rehearse(fleet, request, worker, say), as_json=as_json)
            return Exit.DONE
        started = start_run(fleet, request, worker, say)
        if not wait:
            _report(started, None, as_json=as_json)
            return Exit.DONE
        return _wait(started, worker, as_json=as_json)


def end_with_connection(invocation: Invocation) -> None:
    """From now on the end of the connection that a command came over is a ^C."""
    if invocation.is_remote:
        interrupt_on_hangup(1)


def dispatch_picked(
    invocation: Invocation,
    target: str,
    *,
    prefer_skills: Sequence[str] = (),
    dry_run: bool = False,
    wait: bool = False,
    as_json: bool = False,
) -> int:
    """Dispatch the best ready issue for a target, in the same words."""
    from gtrun import pick  # noqa: PLC0415 - a dispatch that names its issue does not pay for the planner

    with Worker.start() as worker:
        fleet, caller = invocation.fleet(), invocation.caller()
        if belongs_elsewhere(invocation, fleet):
            worker.close()
            return run_there(invocation, fleet, starts="gtrun ps")
        end_with_connection(invocation)
        order = pick.Order(
            caller=caller, environment=invocation.environment, by=invocation.by(), sweep=pick.new_sweep(),
            prefer_skills=tuple(prefer_skills),
        )  # fmt: skip
        if dry_run:
            chosen = pick.choose(fleet, order, target)
            with worker.twin() as another:
                prepared = rehearse(fleet, order.request(chosen.issue, str(chosen.agent)), another, say)
            say(f"issue {chosen.issue.key} {chosen.why}")
            _show_plan(prepared, as_json=as_json)
            return Exit.DONE
        started = pick.dispatch_next(fleet, order, target, worker, say)
        return _answered(started, fleet, caller, worker, wait=wait, as_json=as_json)


def dispatch_plugin(
    invocation: Invocation,
    target: str,
    file: str,
    *,
    dry_run: bool = False,
    wait: bool = False,
    as_json: bool = False,
) -> int:
    """Dispatch a plugin, in the same words: to the agent that is named, or to one of a rig."""
    from gtrun import pick  # noqa: PLC0415 - what a dispatch that names its issue does not pay for
    from gtrun.plugins import payload  # noqa: PLC0415

    key = payload.key_of(file)
    data = payload.read(file) if invocation.attached is None else invocation.attached
    payload.kind_of(data)
    with Worker.start() as worker:
        fleet, caller = invocation.fleet(), invocation.caller()
        if belongs_elsewhere(invocation, fleet):
            worker.close()
            return run_there(invocation, fleet, starts=f"gtrun live {key}", attached=data)
        end_with_connection(invocation)
        request = Request(target, key, caller, invocation.environment, invocation.by(), payload=data)
        order = pick.Order(
            caller=caller, environment=invocation.environment, by=invocation.by(), sweep=pick.new_sweep()
        )
        is_rig = target in fleet.rigs
        if dry_run:
            if is_rig:
                request = pick.for_agent(order, request, pick.choose_for_plugin(fleet, order, request)[0])
            with worker.twin() as another:
                _show_plan(rehearse(fleet, request, another, say), as_json=as_json)
            return Exit.DONE
        if is_rig:
            started = pick.dispatch_plugin(fleet, order, request, worker, say)
        else:
            with worker.twin() as another:
                started = start_run(fleet, request, another, say)
        return _answered(started, fleet, caller, worker, wait=wait, as_json=as_json)


def _answered(started: Started, fleet: Fleet, caller: Account, worker: Worker, *, wait: bool, as_json: bool) -> int:
    """Say what was started, or with `wait` wait for it, by a twin of a worker that is nobody yet; the exit code."""
    if not wait:
        _report(started, None, as_json=as_json)
        return Exit.DONE
    with worker.twin() as another:
        another.act_as(route_of(fleet, fleet.agents[started.run.agent], caller))
        return _wait(started, another, as_json=as_json)


def _show_plan(plan: Prepared, *, as_json: bool) -> None:
    if as_json:
        document(
            "plan", unit=plan.run.unit, agent=plan.run.agent, issue=plan.run.issue.key, program=plan.program,
            argv=plan.argv, workdir=plan.run.workdir, stdin=plan.stdin,
        )  # fmt: skip
        return
    print(f"would start {plan.run.unit} on {plan.run.agent} in {plan.run.workdir}: {plan.argv!r}")
    if plan.stdin is not None:
        print(f"with this on its standard input:\n{plain_lines(plan.stdin)}")


def _wait(started: Started, worker: Worker, *, as_json: bool) -> int:
    """Say that it was started, wait for its end however long that takes, and return its own code."""
    if not as_json:
        _report(started, None, as_json=False)
    try:
        worker.call(at_agent.await_end, at_agent.OfRun(started.run.unit, started.launched.run), forever=True)
    except KeyboardInterrupt:
        raise GtrunError(
            f"interrupted: {started.run.unit} on {started.run.agent} goes on",
            hint=f"gtrun logs -f {started.run.issue.key}, or gtrun stop {started.run.issue.key}",
            code=Exit.INTERRUPTED,
        ) from None
    run = worker.call(at_agent.run_of, at_agent.ByToken(started.run.token))
    ending = run.ending if run else None
    if as_json:
        _report(started, run, as_json=True)
    elif ending is not None and started.launched.ending is None:
        say(f"it has ended: {outcome(ending)}")
    return Exit.FAILED if ending is None else ending.shell_code


def _report(started: Started, run: Run | None, *, as_json: bool) -> None:
    ending = (run.ending if run else None) or started.launched.ending
    if as_json:
        document(
            "dispatch",
            started=True,
            unit=started.run.unit,
            agent=started.run.agent,
            issue=started.run.issue.key,
            run=started.launched.run,
            not_in_force=list(started.launched.not_in_force),
            drop_ins=list(started.launched.drop_ins),
            is_preparing=started.launched.is_preparing,
            result=ending.result if ending else None,
            exit_code=ending.exit_code if ending else None,
            signal=ending.signal if ending else None,
        )
        return
    print(f"started {started.run.unit} on {started.run.agent}, run {started.launched.run}", flush=True)
    if ending is not None:
        say(f"it has ended: {outcome(ending)}")
