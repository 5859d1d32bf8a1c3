"""Placeholders: names only, one pass, no surprises from hostile templates or hostile values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.placeholders import expand, fields, literal_prefix

VALUES = {"issue": "142", "title": "{issue} }} {{ {title}", "empty": ""}


@pytest.mark.parametrize(
    ("template", "names", "expanded"),
    [
        ("", [], ""),
        ("plain", [], "plain"),
        ("{issue}", ["issue"], "142"),
        ("a{issue}b{issue}", ["issue", "issue"], "a142b142"),
        ("{{issue}}", [], "{issue}"),
        ("{{{issue}}}", ["issue"], "{142}"),
        ("{{}}", [], "{}"),
        ("{{{{", [], "{{"),
        ('{{"n": {issue}}}', ["issue"], '{"n": 142}'),
        ("{title}{issue}", ["title", "issue"], "{issue} }} {{ {title}142"),
        ("$x %h \\{issue}\n", ["issue"], "$x %h \\142\n"),
    ],
)
def test_templates(template, names, expanded):
    assert fields(template) == names
    assert expand(template, VALUES) == expanded


@pytest.mark.parametrize(
    "template",
    [
        *("{", "}", "{issue", "issue}", "{{issue}", "{issue}}", "}{", "{ {issue} }", "{issue{issue}}"),
        *(
            "{}",
            "{0}",
            "{1}",
            "{a.b}",
            "{a[0]}",
            "{a!r}",
            "{a:>10}",
            "{issue:{issue}}",
            "{ issue }",
            "{issue\n}",
            "{ISSUE}",
        ),
        *("{_a}", "{a-b}", "{ïssue}", "{issue.__class__}"),
    ],
)
@pytest.mark.parametrize("function", [fields, lambda template: expand(template, VALUES)])
def test_what_is_no_placeholder_is_refused(function, template):
    with pytest.raises(ValueError, match=r"means nothing|is no placeholder"):
        function(template)


def test_an_unknown_placeholder_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown placeholder \{nope\}; known here: \{issue\}"):
        expand("{nope}", {"issue": "1"})


@pytest.mark.parametrize(
    ("template", "prefix"),
    [
        ("{title}", ""),
        ("--t={title}", "--t="),
        ("{{{title}", "{"),
        ("a}}{title}b", "a}"),
        ("all", "all"),
        ("", ""),
    ],
)
def test_the_literal_prefix_is_what_stands_there_whatever_the_values(template, prefix):
    assert literal_prefix(template) == prefix


@given(st.text(), st.text())
def test_values_arrive_as_they_are(before, value):
    template = before.replace("{", "{{").replace("}", "}}") + "{title}"
    assert expand(template, {"title": value}) == before + value
    assert literal_prefix(template) == before


@given(st.text(st.sampled_from("{}ab.!:0")))
def test_a_template_that_is_accepted_reads_as_it_would_for_str_format(template):
    try:
        values = {name: f"<{name}>" for name in fields(template)}
    except ValueError:
        with pytest.raises(ValueError, match=r"means nothing|is no placeholder|unknown"):
            expand(template, {})
    else:
        assert expand(template, values) == template.format(**values)
