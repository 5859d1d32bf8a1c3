"""A property as a line of a unit file. That a manager reads the same from it is for the scenarios."""

import pytest

from gtrun.systemd.unit_file import lines, rendered


@pytest.mark.parametrize(
    ("prop", "wanted"),
    [
        (("Description", "s", "me: 100% \\x5c"), ["Description=me: 100%% \\x5c"]),
        (("Delegate", "b", True), ["Delegate=yes"]),
        (("MemoryMax", "t", 4096), ["MemoryMax=4096"]),
        (("TimeoutStopUSec", "t", 1_500_000), ["TimeoutStopSec=1500000us"]),
        (("TimeoutStartUSec", "t", (1 << 64) - 1), ["TimeoutStartSec=infinity"]),
        (("CPUQuotaPerSecUSec", "t", 1_500_000), ["CPUQuota=150%"]),
        (("RuntimeDirectoryMode", "u", 0o700), ["RuntimeDirectoryMode=0700"]),
        (("ReadWritePaths", "as", ["/a", "/b"]), ["ReadWritePaths=/a /b"]),
        (("ExecStopPost", "a(sasb)", [("/g", ["/g", "x"], True)] * 2), ["ExecStopPost=-/g x"] * 2),
        (("LoadCredential", "a(ss)", [("a", "/a"), ("b", "/b")]), ["LoadCredential=a:/a", "LoadCredential=b:/b"]),
        (("BindPaths", "a(ssbt)", [("/a", "/a", False, 0x4000)]), ["BindPaths=/a:/a:rbind"]),
    ],
)
def test_lines(prop, wanted):
    assert lines(*prop) == wanted


def test_sections_and_what_only_the_bus_knows():
    text = rendered([("AddRef", "b", True), ("Type", "s", "exec"), ("CollectMode", "s", "inactive")])
    assert text == "[Unit]\nCollectMode=inactive\n\n[Service]\nType=exec\n"


def test_a_kind_that_nobody_has_thought_of_is_no_line():
    with pytest.raises(KeyError):
        lines("New", "a{sv}", {})
