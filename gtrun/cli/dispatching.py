"""What `gtrun dispatch` does, without its option parser."""

from gtrun.cli.forwarding import belongs_elsewhere, run_there
from gtrun.cli.invocation import Invocation
from gtrun.cli.output import document, say
from gtrun.dispatch import Request, Started, rehearse
from gtrun.dispatch import dispatch as start_run
from gtrun.exits import Exit
from gtrun.hangup import interrupt_on_hangup
from gtrun.markers import outcome
from gtrun.model import Run
from gtrun.names import parse_issue
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent


def dispatch(
    invocation: Invocation,
    target: str,
    issue: str,
    *,
    dry_run: bool = False,
    wait: bool = False,
    as_json: bool = False,
) -> int:
    """Dispatch, say what was started, and with `wait` return the run's own code."""
    key = parse_issue(issue)
    # forked first: it imports the D-Bus binding while the configuration, the board and the ledger are read here
    with Worker.start() as worker:
        request = Request(target, key, invocation.caller(), invocation.environment, invocation.by())
        fleet = invocation.fleet()
        if belongs_elsewhere(invocation, fleet):
            worker.close()
            return run_there(invocation, fleet, starts=key)
        if invocation.is_remote:
            interrupt_on_hangup(1)
        if dry_run:
            plan = rehearse(fleet, request, worker, say)
            if as_json:
                document(
                    "plan", unit=plan.run.unit, agent=plan.run.agent, issue=key, program=plan.program, argv=plan.argv,
                    workdir=plan.run.workdir, stdin=plan.stdin,
                )  # fmt: skip
            else:
                print(f"would start {plan.run.unit} on {plan.run.agent} in {plan.run.workdir}: {plan.argv!r}")
            return Exit.DONE
        started = start_run(fleet, request, worker, say)
        if not wait:
            _report(started, None, as_json=as_json)
            return Exit.DONE
        worker.call(at_agent.await_end, at_agent.OfRun(started.run.unit, started.launched.run), forever=True)
        run = worker.call(at_agent.run_of, at_agent.ByToken(started.run.token))
        _report(started, run, as_json=as_json)
        return Exit.FAILED if run is None or run.ending is None else run.ending.shell_code


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
            result=ending.result if ending else None,
            exit_code=ending.exit_code if ending else None,
            signal=ending.signal if ending else None,
        )
        return
    print(f"started {started.run.unit} on {started.run.agent}, run {started.launched.run}")
    if ending is not None:
        say(f"it has ended: {outcome(ending)}")
