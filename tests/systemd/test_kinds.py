"""Every kind of entry is written somewhere and explained in the catalog, with fields that it really has."""

import ast
import re
from pathlib import Path

import pytest

import gtrun
from gtrun import catalog
from gtrun.systemd.kinds import Kind

OURS = {"MESSAGE", "MESSAGE_ID", "PRIORITY", "SYSLOG_IDENTIFIER"}


def named(node):
    """The kinds that a piece of source names."""
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "Kind"
    }


def written():
    """(place, kinds, fields) of each call of `entry.write`: what it is given may be chosen anywhere in its function."""
    for path in Path(gtrun.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "entry.write":
                    place = f"{path.name}:{call.lineno}"
                    yield place, named(call.args[0]) or named(function), [one.arg for one in call.keywords]


def explained():
    """The catalog: MESSAGE_ID to (header, text)."""
    entries = re.split(r"^-- ", catalog.shipped().read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for one in entries:
        message_id, rest = one.split("\n", 1)
        header, text = rest.split("\n\n", 1)
        assert message_id not in found, f"{message_id} is explained twice"
        found[message_id] = (dict(line.split(": ", 1) for line in header.split("\n")), text)
    return found


def test_ids_are_unique_and_of_their_form():
    ids = [kind.message_id for kind in Kind]
    assert len(set(ids)) == len(ids) == len(list(Kind.__members__))
    assert all(re.fullmatch("[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}", one) for one in ids)


def test_every_kind_is_written_and_nothing_else_is():
    calls = list(written())
    assert len(calls) >= 10, "no calls were found"
    for place, kinds, fields in calls:
        assert kinds, f"{place} names no kind"
        assert kinds <= set(Kind.__members__), place
        assert None not in fields, f"{place} hides its fields"
        assert all(re.fullmatch("GTRUN_[A-Z_]+", field) for field in fields), place
    assert set().union(*(kinds for _, kinds, _ in calls)) == set(Kind.__members__)


def test_the_catalog_explains_every_kind_and_no_other():
    assert set(explained()) == {kind.message_id for kind in Kind}


@pytest.mark.parametrize("kind", Kind)
def test_what_an_explanation_names_is_in_each_such_entry(kind):
    header, text = explained()[kind.message_id]
    assert set(header) == {"Subject", "Defined-By"}
    wanted = set(re.findall(r"@([A-Z_]+)@", header["Subject"] + text))
    assert wanted
    for place, kinds, fields in written():
        if kind.name in kinds:
            assert wanted <= set(fields) | OURS, f"{place} lacks {wanted - set(fields)}"
    assert "@" not in re.sub(r"@[A-Z_]+@", "", text)
    assert max(map(len, text.splitlines())) <= 80


def test_the_page_lists_every_kind_with_its_id_and_fields():
    page = (Path(__file__).parents[2] / "docs/notices.md").read_text()
    rows = re.findall(r"^\| `([A-Z_]+)`[^|]*\| `([0-9a-f]{32})` \| (.*) \|$", page, re.MULTILINE)
    assert {(name, message_id) for name, message_id, _ in rows} == {(kind.name, kind.message_id) for kind in Kind}
    before: set[str] = set()
    for name, _, told in rows:
        fields = set(re.findall(r"`([A-Z_]+)`", told))
        if "the same as an attempt" in told:
            fields |= {"AGENT", "ISSUE", "RIG", "UNIT", "ATTEMPT"}
        elif "the same" in told:
            fields |= before
        before = fields
        for _, kinds, written_fields in written():
            if name in kinds:
                assert {f"GTRUN_{field}" for field in fields} == set(written_fields), name
