import subprocess
import sys
from pathlib import Path

import gtrun

OTHERS = ("msgspec", "pystemd", "sh", "typer", "rich")


def test_it_needs_no_package_of_others():
    """`scripts/install` runs on a bare Python: what gtrun needs is what it is about to fetch."""
    root = str(Path(gtrun.__file__).parent.parent)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules.update(dict.fromkeys(sys.argv[2:]));"
        " import gtrun.release.install"
    )
    bare = [sys.executable, "-ISBc", code, root, *OTHERS]
    done = subprocess.run(bare, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
