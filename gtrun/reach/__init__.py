"""Acting as an agent's account: its user manager and its state, each where a deadline and ^C can end it."""

from gtrun.reach.worker import Worker

__all__ = ["Worker"]
