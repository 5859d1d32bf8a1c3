"""What becomes true of a run, fact by fact, and what all of them tell. Pure: `gtrun.state.record` keeps them."""

import msgspec

from gtrun.markers import Kind
from gtrun.model import Ending, Notice, PullRequest, ResolvedRun, Result, Run
from gtrun.names import RunId


class Resolved(msgspec.Struct, frozen=True, tag="resolved"):
    """The first fact: what is to be run."""

    run: ResolvedRun


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The manager executed the runner, of this release (its folder).

    `at` is in seconds since the epoch; None if it only tried to.
    """

    run: RunId
    at: float | None
    release: str = ""


class Updated(msgspec.Struct, frozen=True, tag="updated"):
    """This run goes on in another release (its folder), once and for all; durable before that is executed."""

    run: RunId
    release: str


class HandedOver(msgspec.Struct, frozen=True, tag="handed-over"):
    """The close-out was given to the release that the run has ended up in."""

    run: RunId


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    """Something a reader of the issue must know, such as that the board was not asked."""

    text: str


class Entered(msgspec.Struct, frozen=True, tag="entered"):
    """The manager executed, inside the run's sandbox, what becomes the agent program. `at` as in `Begun`."""

    at: float


class WorksIn(msgspec.Struct, frozen=True, tag="works-in"):
    """The worktree that the run uses instead of one of its clones."""

    clone: str
    folder: str


class GaveUp(msgspec.Struct, frozen=True, tag="gave-up"):
    """Why the runner ended the run without the agent program."""

    reason: str


class EndedFor(msgspec.Struct, frozen=True, tag="ended-for"):
    """Why what executes a plugin has ended it, and as what, where the exit code does not say it."""

    reason: str
    result: Result


class Disposed(msgspec.Struct, frozen=True, tag="disposed"):
    """Why this stopped being work before the started marker."""

    reason: str


class StopAsked(msgspec.Struct, frozen=True, tag="stop-asked"):
    """Who asked gtrun to stop the run."""

    by: str


class FoundIdle(msgspec.Struct, frozen=True, tag="found-idle"):
    """It did nothing for so many seconds, and is to be stopped for that; None: it does something again."""

    seconds: float | None


class Owed(msgspec.Struct, frozen=True, tag="owed"):
    """The intent to post a marker. Durable before the board is asked."""

    marker: Kind


class Posted(msgspec.Struct, frozen=True, tag="posted"):
    """The board has this marker."""

    marker: Kind


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """Why a marker is not owed any more, though no board has it: such as that its issue is gone."""

    marker: Kind
    reason: str


class QuotaNoted(msgspec.Struct, frozen=True, tag="quota-noted", omit_defaults=True):
    """That the quota is used up stands in the account's quota state; whether it was this run that found it out."""

    is_news: bool = False


class Noticed(msgspec.Struct, frozen=True, tag="noticed"):
    """A notice was given, to the journal and to the command that wants it."""

    notice: Notice


class PullsSeen(msgspec.Struct, frozen=True, tag="pulls-seen", omit_defaults=True):
    """The issue's pull requests as the finished marker tells them, or why the board could not be asked for them.

    A fact, since a marker that is tried again must have the same text.
    """

    pulls: tuple[PullRequest, ...] | None
    problem: str = ""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """How the run ended. `at` is in seconds since the epoch."""

    ending: Ending
    at: float


Fact = (
    Resolved | Begun | Updated | HandedOver | Entered | Noted | WorksIn | GaveUp | EndedFor | Disposed | StopAsked
    | FoundIdle | Owed | Posted | Dropped | QuotaNoted | Noticed | PullsSeen | Ended
)  # fmt: skip


class Told(msgspec.Struct):
    """What a record's facts tell: the run, why the runner gave up, and why it was disposed (empty: it did not).

    `updated_in` and `handed_over_in` are the unit's invocations in which that happened.
    """

    run: Run
    gave_up: str = ""
    disposed: str = ""
    updated_in: RunId | None = None
    handed_over_in: RunId | None = None
    entered: bool = False
    ended_for: EndedFor | None = None

    def learn(self, fact: Fact) -> None:  # noqa: C901, PLR0912 - one case for each kind of fact
        """One more fact, in the order in which they became true."""
        match fact:
            case Begun(run, at, release):
                self._set(run=run, begun_at=at, begun_in=release, release=release)
            case Updated(run, release):
                self.updated_in = run
                self._set(release=release)
            case HandedOver(run):
                self.handed_over_in = run
            case Entered():
                self.entered = True
            case Noted(text):
                self._set(notes=(*self.run.notes, text))
            case WorksIn(clone, folder):
                self._set(works_in=(*self.run.works_in, (clone, folder)))
            case GaveUp(reason):
                self.gave_up = reason
            case EndedFor():
                self.ended_for = fact
            case Disposed(reason):
                self.disposed = reason
            case StopAsked(by):
                self._set(stop_asked_by=by)
            case FoundIdle(seconds):
                self._set(idle_for=seconds)
            case Owed(marker):
                self._set(owed=_with(self.run.owed, marker))
            case Dropped(marker):
                self._set(owed=tuple(kind for kind in self.run.owed if kind != marker))
            case Posted(marker):
                self._set(posted=_with(self.run.posted, marker))
            case QuotaNoted(is_news):
                self._set(is_quota_noted=True, is_dark_news=self.run.is_dark_news or is_news)
            case Noticed(notice):
                self._set(noticed=_with(self.run.noticed, notice))
            case PullsSeen(pulls, problem):
                self._set(pulls=pulls, pulls_problem=problem)
            case Ended(ending, at):
                self._set(ending=ending, ended_at=at)
                if Kind.STARTED in self.run.owed:
                    self._set(owed=_with(self.run.owed, Kind.FINISHED))

    def _set(self, **changes: object) -> None:
        self.run = msgspec.structs.replace(self.run, **changes)


def _with(kinds: tuple[str, ...], kind: Kind | Notice) -> tuple[str, ...]:
    return kinds if kind in kinds else (*kinds, kind.value)


def owed_notices(run: Run) -> list[Notice]:
    """What a run has to tell and nobody has told yet, in order."""
    due = {Notice.RUN_ENDED: run.ending is not None, Notice.AGENT_DARK: run.is_dark_news}
    return [notice for notice, is_due in due.items() if is_due and notice not in run.noticed]
