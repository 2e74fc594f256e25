"""The policy file: what it says holds, and what it does not know is an error at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.agents import Policy
from braidlog.errors import InvalidArgument

WHOLE = """
[default]
promotion = "review"
reviewers = ["ops-*"]
fork_ttl = "2h"

[[log]]
pattern = "orders*"
promotion = "auto"
validators = ["restock", "schema"]
on_failure = "squash"
hold = "500ms"
fork_bytes = "16MiB"
fork_bytes_per_s = 1000
forks = 3
fork_names = "{log}.try.{agent}."

[[log]]
pattern = "*"
promotion = "never"
"""


def test_the_first_rule_that_matches_holds_and_inherits_the_default() -> None:
    policy = Policy.parse(WHOLE)
    rule = policy.rule("orders.eu")
    assert (rule.promotion, rule.validators, rule.on_failure) == ("auto", ("restock", "schema"), "squash")
    assert (rule.hold, rule.fork_bytes, rule.fork_bytes_per_s, rule.forks) == (0.5, 16 * 2**20, 1000, 3)
    assert (rule.reviewers, rule.fork_ttl) == (("ops-*",), 7200.0)
    assert policy.rule("payments").promotion == "never"
    assert policy.validators == ["restock", "schema"]


def test_without_a_file_a_person_decides_about_everything() -> None:
    rule = Policy.default().rule("orders")
    assert rule.promotion == "review"
    assert not rule.promotable
    assert rule.may_review("anybody")


def test_nothing_is_promoted_into_a_system_log_whatever_the_file_says() -> None:
    rule = Policy.parse('[[log]]\npattern = "*"\npromotion = "auto"').rule("braidlog.audit")
    assert (rule.promotion, rule.forks, rule.may_review("ann")) == ("never", 0, False)


def test_names_of_an_agents_forks_are_names_of_logs() -> None:
    rule = Policy.parse(WHOLE).rule("orders")
    assert rule.fork_prefix("orders", "agent 7/x") == "orders.try.agent-7-x."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]", "'defaults' is not known: did you mean 'default'?"),
        ('[default]\npromotoin = "auto"', "did you mean 'promotion'?"),
        ("[default]\nzzz = 1", "there are promotion, validators"),
        ('[default]\npattern = "*"', "'pattern' is not known"),
        ('[default]\npromotion = "always"', "it is one of auto, review, never"),
        ('[default]\nhold = "soon"', "write 90, '90s'"),
        ("[default]\nhold = 0", "more than nothing"),
        ("[default]\nhold = true", "write 90, '90s'"),
        ('[default]\nfork_bytes = "2MB"', "'64KiB'"),
        ("[default]\nforks = -1", "from 0 up"),
        ('[default]\nreviewers = "ann"', "a list of texts"),
        ('[default]\nfork_names = "{who}"', "{log} and {agent}"),
        ('[default]\nfork_names = "braidlog.{agent}."', "do not begin with braidlog."),
        ('[log]\npattern = "*"', "two brackets"),
        ('[[log]]\npromotion = "auto"', "has no pattern"),
    ],
)
def test_what_is_not_right_is_told_with_what_would_be(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Policy.parse(text)
    assert said in str(refused.value)


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    for text in ("[default]\nhlod = 1", "[default", "\udcff"):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(InvalidArgument, match=r"policy\.toml"):
            Policy.load(path)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        Policy.load(tmp_path / "nothing.toml")
    path.write_text(WHOLE)
    assert Policy.load(path) == Policy.parse(WHOLE)
