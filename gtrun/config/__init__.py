"""The configuration: fleet.toml, found, trusted, checked and resolved."""

from gtrun.config.load import find, load, places
from gtrun.config.schema import Agent, BoardConfig, Fleet, Rig, RunProfile

__all__ = ["Agent", "BoardConfig", "Fleet", "Rig", "RunProfile", "find", "load", "places"]
