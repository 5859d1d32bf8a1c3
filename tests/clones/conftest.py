"""A remote and a clone for each test, copied from one that is made once."""

import pytest

from tests.clones.place import Place


@pytest.fixture(scope="session")
def first(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("first")).make()


@pytest.fixture
def place(tmp_path, first):
    return Place(tmp_path).copy(first)
