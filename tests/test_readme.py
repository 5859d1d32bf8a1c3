"""What README.md lists is what there is: a table that nobody holds goes stale."""

import ast
import re
from pathlib import Path

import pytest

import gtrun
from gtrun.cli.app import COMMANDS
from gtrun.exits import Exit
from gtrun.model import Result

CHECKOUT = Path(__file__).parent.parent
README = (CHECKOUT / "README.md").read_text()
INTERNAL = {"run", "closeout"}  # what the unit executes


def section(title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)[1]


def rows(title):
    """The first cells of the tables of a section, without their heads."""
    return re.findall(r"^\| (?!-)(.+?) \|", section(title), re.MULTILINE)


def documents():
    """Every `kind` with its fields that a command gives `document`, by its source."""
    found = {}
    for path in Path(gtrun.__file__).parent.glob("cli/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "document":
                kind = node.args[0]
                if isinstance(kind, ast.Constant):
                    found[kind.value] = {keyword.arg for keyword in node.keywords}
    return found


def test_every_exit_code_is_in_the_table_and_no_other():
    assert {int(code) for code in rows("Exit codes") if code.isdecimal()} == {code.value for code in Exit}


def test_every_command_is_in_the_table():
    told = set(re.findall(r"`([a-z]+)", " ".join(rows("First run"))))
    assert set(COMMANDS) - INTERNAL <= told


def test_every_result_is_in_the_table_and_no_other():
    assert set(rows("What the issue says")) - {"result"} == {f"`{result}`" for result in Result}


@pytest.mark.parametrize("kind", sorted(documents()))
def test_every_document_is_listed_with_its_fields(kind):
    for line in section("JSON").splitlines():
        cells = line.split("|")
        if len(cells) > 2 and f"`{kind}`" in cells[1]:
            assert documents()[kind] <= set(re.findall(r"`([a-z_]+)`", cells[2]))
            return
    pytest.fail(f"no row for {kind}")


def test_links_lead_somewhere():
    for page in [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
