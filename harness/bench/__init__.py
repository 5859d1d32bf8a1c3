"""How fast gtrun is, beside its peers, on a real systemd: `scripts/bench`. A report, not a test."""
