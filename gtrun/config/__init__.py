"""The configuration: fleet.toml, found, trusted, checked and resolved."""

from gtrun.config.schema import Agent, BoardConfig, ClaimConfig, Fleet, PluginProfile, Rig, RunProfile, Schedule
from gtrun.config.source import find, load, places

__all__ = [
    "Agent",
    "BoardConfig",
    "ClaimConfig",
    "Fleet",
    "PluginProfile",
    "Rig",
    "RunProfile",
    "Schedule",
    "find",
    "load",
    "places",
]
