"""What a pass of the scheduler asks an agent for, all at once: its units, its quota, and how its runs have ended."""

import msgspec

from gtrun.counters import ledger_result
from gtrun.errors import StateError
from gtrun.names import UNIT_GLOBS, Token
from gtrun.quota import QuotaFile
from gtrun.reach.operations.looking import Patterns, list_units
from gtrun.reach.operations.quota import read_quota
from gtrun.reach.operations.session import Nothing, Session, by_token
from gtrun.systemd.units import UnitState


class ToGlance(msgspec.Struct, frozen=True):
    """The runs of which nobody has learned the end yet."""

    tokens: list[Token]


class Ended(msgspec.Struct, frozen=True):
    """How a run ended, and when, in seconds since the epoch; `result` is empty if no record tells it any more."""

    token: Token
    result: str
    at: float


class Glance(msgspec.Struct, frozen=True):
    """What was seen."""

    units: list[UnitState]
    quota: QuotaFile
    ended: list[Ended]


def glance(session: Session, arguments: ToGlance) -> Glance:
    """Look once. Raises NoManager.

    The units first: a run that ends in between is then live and has ended, never neither.
    """
    units = list_units(session, Patterns([*UNIT_GLOBS]))
    ended = []
    for token in arguments.tokens:
        try:
            run = by_token(session, token)
        except StateError:
            continue  # whoever reconciles says so
        if run is None:
            ended.append(Ended(token, "", 0.0))
        elif result := ledger_result(run):
            ended.append(Ended(token, result, run.ended_at or 0.0))
    return Glance(units, read_quota(session, Nothing()), ended)
