"""The suite's cases that pass must keep passing; passing.txt lists them."""
import pytest

from conformance import run, suite


@pytest.fixture(scope="session")
def results():
    return run.run(run.passing())


def test_the_list_is_of_this_suite():
    assert set(run.passing()) <= set(suite.cases())
    assert len(suite.cases()) == 1914


@pytest.mark.parametrize("name", run.passing())
def test_case(name, results):
    status, text = results[name]
    assert status == "passed", f"{status}: {text}"
