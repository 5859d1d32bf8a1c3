"""Start one run of one issue by one coding agent, exactly once, as a systemd unit."""

__version__ = "0.1.0"
