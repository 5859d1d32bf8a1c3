"""Scenarios that only a real systemd can show, and their mutation controls."""
