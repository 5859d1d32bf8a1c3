"""The properties of a transient unit as the unit file that means the same, for whatever reads unit files."""

from collections.abc import Callable, Sequence
from typing import Any

from gtrun.systemd.bus import Property

_INFINITY = (1 << 64) - 1
_OF_THE_BUS = frozenset({"AddRef"})
"""What asks the manager for something on this connection, and says nothing of the unit."""

_IN_UNIT = frozenset({"CollectMode", "Description", "Documentation", "Wants"})
"""What stands in the section [Unit]; everything else is a service's."""

_SPANS = ("RuntimeMaxUSec", "TimeoutStartUSec", "TimeoutStopUSec")


def rendered(properties: Sequence[Property]) -> str:
    """The text of a unit file (systemd.syntax(7))."""
    sections: dict[str, list[str]] = {"Unit": [], "Service": []}
    for name, signature, value in properties:
        if name not in _OF_THE_BUS:
            sections["Unit" if name in _IN_UNIT else "Service"] += lines(name, signature, value)
    return "\n".join(f"[{section}]\n" + "".join(f"{line}\n" for line in each) for section, each in sections.items())


def lines(name: str, signature: str, value: Any) -> list[str]:  # noqa: ANN401 - what a D-Bus property holds
    """One property as lines of a unit file. Raises KeyError for a signature that no property of a run has."""
    if name in _SPANS:
        return [f"{name.removesuffix('USec')}Sec={'infinity' if value == _INFINITY else f'{value}us'}"]
    if name == "CPUQuotaPerSecUSec":
        return [f"CPUQuota={value // 10_000}%"]
    if name.endswith("Mode") and signature == "u":
        return [f"{name}={value:04o}"]
    return [f"{name}={text}" for text in _TEXTS[signature](value)]


def _literal(text: str) -> str:
    """Without specifiers: over D-Bus there are none."""
    return text.replace("%", "%%")


_TEXTS: dict[str, Callable[[Any], list[str]]] = {
    "s": lambda value: [_literal(value)],
    "b": lambda value: ["yes" if value else "no"],
    "t": lambda value: [str(value)],
    "u": lambda value: [str(value)],
    "as": lambda value: [" ".join(map(_literal, value))],
    "a(sasb)": lambda value: [f"{'-' if may_fail else ''}{' '.join(words)}" for _, words, may_fail in value],
    "a(ss)": lambda value: [f"{name}:{_literal(path)}" for name, path in value],
    "a(ssbt)": lambda value: [f"{source}:{target}:rbind" for source, target, _, _ in value],
}
