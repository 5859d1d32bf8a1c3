"""scripts/test is green only if tests ran and none was skipped, however they skip themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
PASSES = "def test_a(): pass\n"


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(
    ("source", "arguments", "code"),
    [
        (PASSES, (), 0),
        ("def test_a(): assert 0\n", (), 1),
        (PASSES + "import pytest\ndef test_b(): pytest.skip('x')\n", (), 1),
        (PASSES + "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test_b(): pass\n", (), 1),
        ("import pytest\npytest.skip('x', allow_module_level=True)\n", (), 1),
        (PASSES, ("--collect-only",), 1),
        (PASSES, ("-k", "nothing"), 5),
    ],
    ids=["passes", "fails", "skip", "skipif", "skipped module", "only collected", "none selected"],
)
def test_what_counts_as_green(source, arguments, code, workers, tmp_path):
    (tmp_path / "test_it.py").write_text(source)
    (tmp_path / "test_beside.py").write_text(PASSES)
    options = ["-p", "harness.strict", "-p", "no:cacheprovider", "-n", workers, "-q", "-c", "/dev/null", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", *options, str(tmp_path)],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr


def test_the_script_uses_it():
    assert "-m pytest -p harness.strict " in (CHECKOUT / "scripts/test").read_text()
