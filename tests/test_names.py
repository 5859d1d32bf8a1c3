"""Names are mutexes and command-line arguments: two issues never share one, no text gets in unescaped."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtrun.errors import UsageError
from gtrun.names import (
    IssueKey,
    Token,
    UnitName,
    decode_path,
    duplicate_number,
    encode_path,
    identifier,
    in_words,
    is_plain_argument,
    is_run_unit,
    parse_issue,
    plugin_key,
    plugin_name,
    unit_name,
    unit_names,
)

numbers = st.integers(1, 10**18 - 1).map(str)
owners = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,38}\Z")
repositories = st.from_regex(r"\A[a-z0-9._-]{1,100}\Z").filter(lambda name: name not in {".", ".."})
plugins = st.from_regex(r"\A[a-z0-9][a-z0-9_-]{0,31}\Z").filter(lambda name: not re.search("-dup[0-9]", name))
issues = st.one_of(numbers, st.builds("{}/{}#{}".format, owners, repositories, numbers)).map(parse_issue)
keys = st.one_of(issues, plugins.map(plugin_key))
duplicates = st.integers(0, 9999)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("142", "142"),
        ("1", "1"),
        ("999999999999999999", "999999999999999999"),
        ("Owner/Repo.x#7", "owner/repo.x#7"),
        ("o/.github#7", "o/.github#7"),
        ("https://github.com/Owner/repo/issues/142", "owner/repo#142"),
        ("https://git.example:8443/o/r/issues/9", "o/r#9"),
    ],
)
def test_an_issue_is_a_number_or_a_qualified_number_or_a_url(text, key):
    assert parse_issue(text) == key


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "007", "-1", "+1", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "1_000", "#142"),
        *("../x", "../1", "1/../2", "1;reboot", "$(reboot)", "`id`", "1|2", "1\0", "%h", "--help", "task-1"),
        *("\uff11\uff14\uff12", "١٤٢", "²", "🦀", "1🦀", "1\u202e", "1" * 300, "9" * 19),
        *(
            "o/r",
            "o/r#",
            "o/r#0",
            "o/r#01",
            "o/r#\uff11",
            "/r#1",
            "o/#1",
            "o/..#1",
            "o/.#1",
            "-o/r#1",
            "o/r/s#1",
            "o r/x#1",
        ),
        *("o" * 40 + "/r#1", "o/" + "r" * 101 + "#1", "ö/r#1", "o/r#1\n"),
        *(
            "http://github.com/o/r/issues/1",
            "https://github.com/o/r/pull/1",
            "https://github.com/o/r/issues/0",
        ),
        *(
            "https://github.com/o/../issues/1",
            "https://u:p@github.com/o/r/issues/1",
            "https://github.com/o/r/issues/1?x",
        ),
        *("javascript://x/o/r/issues/1", "https:///o/r/issues/1"),
    ],
)
def test_anything_else_names_no_issue(text):
    with pytest.raises(UsageError) as caught:
        parse_issue(text)
    assert caught.value.code == 2
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500


@given(st.text())
@example("1\n")
def test_whatever_is_accepted_is_a_key_in_its_one_spelling(text):
    try:
        key = parse_issue(text)
    except UsageError:
        return
    assert parse_issue(key) == key
    assert is_plain_argument(key.replace("#", "/"))


@pytest.mark.parametrize(
    ("key", "duplicate", "name"),
    [
        ("142", 0, "task-142.service"),
        ("142", 1, "task-142-dup1.service"),
        ("o/r#142", 0, "task-o.r.142.service"),
        ("my-org/a_b.c#7", 2, "task-my_2dorg.a_5fb_2ec.7-dup2.service"),
        ("plugin:disk", 0, "plugin-disk.service"),
        ("plugin:a-b_c-dup", 1, "plugin-a-b_c-dup-dup1.service"),
    ],
)
def test_unit_names_by_example(key, duplicate, name):
    assert unit_name(IssueKey(key), duplicate=duplicate) == name


@given(keys, duplicates, keys, duplicates)
@example("1", 1, "o/r#1", 0)
@example("a-b/c#1", 0, "a/b-c#1", 0)
@example("a/b#1", 0, "a/b-dup1#1", 0)
@example("plugin:1", 0, "1", 0)
@example("plugin:a-dup", 1, "plugin:a", 1)
def test_no_two_units_share_a_name(one, one_duplicate, other, other_duplicate):
    same = unit_name(one, duplicate=one_duplicate) == unit_name(other, duplicate=other_duplicate)
    assert same == ((one, one_duplicate) == (other, other_duplicate))


@given(owners, repositories, owners, repositories, numbers)
@example("a", "b.c", "a.b", "c", "1")  # not owners of a forge, but no reason to collide
@example("o" * 39, "-" * 100, "o" * 39, "-" * 99 + ".", "1")
def test_no_two_repositories_share_a_name(one, one_repository, other, other_repository, number):
    names = {
        unit_name(IssueKey(f"{one}/{one_repository}#{number}")),
        unit_name(IssueKey(f"{other}/{other_repository}#{number}")),
    }
    assert len(names) == len({(one, one_repository), (other, other_repository)})


@given(keys, duplicates)
@example(IssueKey("o" * 39 + "/" + "r" * 100 + "#" + "9" * 18), 9999)
@example(IssueKey("-".join("o" * 20) + "/" + "." * 38 + "r" * 20 + "#1"), 9999)
@example(IssueKey("a/" + "-" * 75 + "b" * 6 + "#1"), 9999)
def test_every_unit_name_is_one_that_systemd_takes_and_we_recognise(key, duplicate):
    name = unit_name(key, duplicate=duplicate)
    assert re.fullmatch(r"[A-Za-z0-9:_.\\-]+\.service", name)  # unit_name_is_valid() of systemd
    assert len(name) <= 255
    assert is_run_unit(name)
    assert duplicate_number(name) == duplicate


@pytest.mark.parametrize("length", range(60, 101))
def test_no_name_is_too_long_just_below_the_length_where_it_is_hashed(length):
    assert len(unit_name(IssueKey(f"o/{'-' * length}#1"), duplicate=9999)) <= 255


@given(keys, keys, duplicates)
@example("plugin:a", "plugin:a-dupe", 0)
@example("plugin:a", "plugin:a-dup", 1)
@example("plugin:a", "plugin:a", 10)
def test_the_patterns_of_an_issue_match_its_units_and_no_others(key, other, duplicate):
    name = unit_name(other, duplicate=duplicate)
    assert any(fnmatchcase(name, pattern) for pattern in unit_names(key)) == (key == other)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "task-.service",
            "task-0.service",
            "task-01.service",
            "task-1",
            "task-1.timer",
            "task-1.service.d",
            "xtask-1.service",
        ),
        *(
            "task-1-dup0.service",
            "task-1-dup.service",
            "task-1-dup01.service",
            "task-1-dup1-dup1.service",
            "task-1.service\n",
        ),
        *(
            "task-a.1.service",
            "task-a.b.c.1.service",
            "task-A.b.1.service",
            "task-\uff11.service",
            "task-foo.service",
            "",
        ),
        *(
            "plugin-.service",
            "plugin--x.service",
            "plugin-X.service",
            "plugin-x-dup1-dup2.service",
            "plugin-x-dup0.service",
            f"plugin-{'x' * 33}.service",
            "xplugin-x.service",
            "plugin-x.timer",
        ),
    ],
)
def test_names_that_we_did_not_derive_are_not_ours(name):
    assert not is_run_unit(name)
    assert duplicate_number(name) == 0


@given(keys)
def test_a_key_is_of_an_issue_or_of_a_plugin(key):
    name = plugin_name(key)
    assert (name is None) == (not key.startswith("plugin:"))
    assert in_words(key) == (f"issue {key}" if name is None else f"plugin {name}")


@pytest.mark.parametrize("name", ["", "-a", "_a", "A", "a.b", "a/b", "a b", "a-dup1", "a-dup1-b", "a" * 33, "é", "a\n"])
def test_what_is_no_name_of_a_plugin(name):
    with pytest.raises(UsageError, match="is no name of a plugin"):
        plugin_key(name)


def test_the_identifier_tells_two_runs_of_one_unit_apart():
    unit = UnitName("task-1.service")
    assert identifier(unit, Token("0123456789abcdef" * 2)) == "task-1.01234567"
    assert identifier(unit, Token("f" * 32)) != identifier(unit, Token("e" * 32))


@given(st.binary())
@example(b"/home/a b/\xff=3D\n;$%")
@example(bytes(range(256)))
def test_any_path_travels_as_a_plain_argument(raw):
    path = raw.decode("utf-8", "surrogateescape")
    encoded = encode_path(path)
    assert decode_path(encoded) == path
    assert is_plain_argument(encoded) or not raw


def test_an_ordinary_path_stays_readable():
    assert encode_path("/home/me/.local/state-1/x_y") == "/home/me/.local/state-1/x_y"


@pytest.mark.parametrize("text", ["", "a b", "a\n", "a;b", "$x", "%h", "a'b", 'a"b', "a\\b", "é", "\uff11", "a\0"])
def test_what_a_daemon_reload_could_change_is_not_plain(text):
    assert not is_plain_argument(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("5", "5"),
        ("owner/name#5", "5"),
        ("Owner/Name#5", "5"),
        ("https://github.com/Owner/Name/issues/5", "5"),
        ("https://GitHub.com/owner/name/issues/5", "5"),
        ("owner/other#5", "owner/other#5"),
        ("https://github.com/owner/other/issues/5", "owner/other#5"),
    ],
)
def test_an_issue_of_the_boards_own_repository_has_one_key(text, key):
    assert parse_issue(text, own="https://github.com/owner/name") == key


def test_an_issue_of_another_site_is_none_of_the_boards():
    with pytest.raises(UsageError, match=r"another site than the board's, which is https://github\.com"):
        parse_issue("https://github.example.com/owner/name/issues/5", own="https://github.com/owner/name")
    with pytest.raises(UsageError, match="names no issue"):
        parse_issue("http://github.com/owner/name/issues/5")
    own = "http://127.0.0.1:4000/owner/name"
    assert parse_issue("http://127.0.0.1:4000/owner/name/issues/5", own=own) == "5"
