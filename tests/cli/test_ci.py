"""The Dockerfile and the workflow against the Makefile: what they make has a rule, what they copy is made before, and what is not there in
a bare image is installed first. The workflow's form is checked by make check-dist, with the schema of its host."""
import re
import shlex
import subprocess

import pytest

from support.tool import ROOT

WORKFLOW = (ROOT / ".github/workflows/check.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


@pytest.fixture(scope="module")
def rules():
    """The targets that have a rule of their own, with the defaults of BUILD."""
    said = subprocess.run(["make", "-C", ROOT, "-npq", "BUILD=build", "VENV=build/venv", "lint"], capture_output=True, text=True).stdout
    said = re.sub(r"^# Not a target:\n.*$", "", said, flags=re.M)
    return set(re.findall(r"^([\w./-]+)::?(?:\s|$)", said, re.M))


def made(command):
    """What each make of a shell line makes."""
    for part in re.split(r"&&|;|\|\|", command):
        words = shlex.split(part)
        if words and words[0] == "make":
            yield from [w for w in words[1:] if not w.startswith("-") and "=" not in w]


def jobs(workflow=WORKFLOW):
    """Each job's lines to run, in order."""
    for job in re.split(r"^  (?=\w+:$)", workflow.split("\njobs:\n")[1], flags=re.M)[1:]:
        yield job.split(":")[0], re.findall(r"^ +- run: (.*)$", job, re.M)


def wrong(commands, rules):
    """The first command that a bare image cannot run: no rule, or a program before what installs it."""
    there = set()
    for command in commands:
        installed = re.search(r"apt-get install [^&]*", command)
        there |= set(installed[0].split()[2:]) if installed else set()
        for word in ("make", "git"):
            if re.search(rf"(?:^|&& ){word} ", command) and word not in there:
                return f"{word} is not installed: {command}"
        missing = [target for target in made(command) if target not in rules]
        if missing:
            return f"no rule for {missing}: {command}"
    return None


def test_the_check_can_fail(rules):
    assert {"check", "deps", "lint"} <= rules and "nosuch" not in rules
    assert "nosuch" in wrong(["apt-get install -y make", "make deps && make -j2 nosuch"], rules)
    assert "not installed" in wrong(["make deps"], rules)
    assert wrong(["apt-get install -y make", "make -j2 BUILD=x check"], rules) is None


def test_workflow(rules):
    found = dict(jobs())
    assert set(found) == {"check", "dist"}
    assert sum(map(len, found.values())) == WORKFLOW.count("run:") >= 12
    for name, commands in found.items():
        assert wrong(commands, rules) is None, name
    uploaded = re.findall(r"^ +(build/dist\S*)$", WORKFLOW, re.M)
    assert len(uploaded) == 4 and {path.rsplit("/", 1)[1] for path in uploaded} == {"*.tar.xz", "*.whl", "*.deb", "SHA256SUMS"}
    for suffix in "tar.xz", "whl", "deb":
        assert re.search(rf"^(?:TARBALL|WHEEL|DEB) = \$\(DIST\)/.*\.{suffix}$", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("system,first", [("windows", "bundle"), ("macos", "bundle_macos")])  # which hosted.py tells apart
def test_workflow_elsewhere(system, first, rules):
    """What the second job runs is what the first one makes; it runs on Linux, too (tests/targets/test_bundle.py)."""
    workflow = (ROOT / f".github/workflows/{system}.yml").read_text()
    found = dict(jobs(workflow))
    assert set(found) == {first, "run"} and wrong(found[first], rules) is None
    assert any(f"{system}-bundle" in command for command in found[first]) and any("python run.py" in command for command in found["run"])
    targets = re.findall(r"target: ([\w-]+)}", workflow)
    assert targets == re.search(system + r"-bundle:.*\n\t@for t in (.*?);", (ROOT / "Makefile").read_text())[1].split()


def test_dockerfile(rules):
    build, last = re.split(r"^FROM .*$", DOCKERFILE, flags=re.M)[1:]
    commands = re.findall(r"^RUN (.*)$", build, re.M)
    assert len(commands) == 2 and wrong(commands, rules) is None
    (folder,) = re.findall(r"^COPY \. (\S+)$", build, re.M)
    assert re.findall(r"^WORKDIR (\S+)$", build, re.M) == [folder]
    copied = re.findall(r"^COPY --from=build (\S+) (\S+)$", last, re.M)
    assert len(copied) == last.count("COPY") == 1
    for path, to in copied:
        assert path.removeprefix(folder + "/") in [target for command in commands for target in made(command)]
        assert f'ENTRYPOINT ["{to}"]' in last
