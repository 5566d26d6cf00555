"""mcc inspect --sbom: valid by the packages of both formats, and true of the artifact."""
import json
import os
import uuid

import pytest

from support.tool import DIGITS, compile_to, mcc, result

FORMATS = "spdx", "cyclonedx"


def sbom(path, form, *args, **more):
    done = mcc("inspect", path, f"--sbom={form}", *args, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(form, text):
    """{what: (name, BLAKE3)} of a bill."""
    data = json.loads(text)
    if form == "spdx":
        return {p["SPDXID"].removeprefix("SPDXRef-").lower(): (p["name"], p["checksums"][0]["checksumValue"] if "checksums" in p else None)
                for p in data["packages"]}
    meta = data["metadata"]
    parts = [meta["component"], *meta["tools"]["components"], *data["components"]]
    return {p["bom-ref"]: (p["name"], p["hashes"][0]["content"] if "hashes" in p else None) for p in parts}


@pytest.fixture(scope="module", params=[("net.so",), ("net.so", "--weights=sidecar", "--winograd=off"), ("net.a", "-O1"),
                                        ("net.dll", "--target=x86_64-windows"), ("net.wasm", "--target=wasm32")], ids=" ".join)
def artifact(request, tmp_path_factory):
    name, *options = request.param
    return compile_to(tmp_path_factory.mktemp("sbom") / name, DIGITS, *options)


def test_spdx_is_valid(artifact, tmp_path):
    parse = pytest.importorskip("spdx_tools.spdx.parser.parse_anything")
    validator = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    file = tmp_path / "net.spdx.json"
    sbom(artifact, "spdx", "-o", file)
    document = parse.parse_file(str(file))
    found = [m.validation_message for m in validator.validate_full_spdx_document(document)]
    # spdx-tools 0.8 asks for 256 digits of a BLAKE3 checksum, which has 256 bits.
    assert [text for text in found if "BLAKE3 must consist of at least 256" not in text] == []
    assert document.creation_info.spdx_version == "SPDX-2.3" and len(document.packages) == 4


def test_cyclonedx_is_valid(artifact):
    validation = pytest.importorskip("cyclonedx.validation.json")
    pytest.importorskip("jsonschema")
    from cyclonedx.schema import SchemaVersion
    text = sbom(artifact, "cyclonedx")
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"BLAKE3"', '"XXH64"')) is not None
    uuid.UUID(json.loads(text)["serialNumber"])


@pytest.mark.parametrize("form", FORMATS)
def test_hashes(artifact, form, tmp_path):
    """Each is that of a file, or of the part of it, as an artifact's note of that file has it."""
    text = sbom(artifact, form)
    found = told(form, text)
    build = result("inspect", artifact)["build"]
    assert found["network"] == (found["artifact"][0], build[0].removeprefix("blake3="))
    side = artifact.with_suffix(".mccw")
    assert found["weights"][0] == ("net.mccw" if side.exists() and form == "cyclonedx" else "weights")
    for option in build[1:]:
        assert option.split("=", 1)[1] in text and option.split("=")[0] in text
    before = found["artifact"][1], found["weights"][1]
    data = bytearray(artifact.read_bytes())
    other = tmp_path / artifact.name
    if side.exists():
        (tmp_path / side.name).write_bytes(side.read_bytes() + b"\0")
    elif artifact.suffix == ".a":  # not sealed, and its weights are its last bytes, except for one that makes them even
        data[-64] ^= 1
    else:
        return
    other.write_bytes(data)
    after = told(form, sbom(other, form))
    assert after["weights"][1] != before[1] and (after["artifact"][1] == before[0]) == side.exists()
    assert after["network"] == found["network"]


@pytest.mark.parametrize("form", FORMATS)
def test_versions_and_time(artifact, form):
    at = {**os.environ, "SOURCE_DATE_EPOCH": "1000000000"}
    text = sbom(artifact, form, env=at)
    assert "2001-09-09T01:46:40Z" in text and text == sbom(artifact, form, env=at)
    assert mcc("--version").stdout.split()[1] in text


@pytest.mark.parametrize("form", FORMATS)
def test_refusals(form, tmp_path):
    path = compile_to(tmp_path / "net.o", DIGITS)
    assert mcc("inspect", DIGITS, f"--sbom={form}").returncode == 2
    assert mcc("inspect", path, f"--sbom={form}", "--json").returncode == 2
    assert mcc("inspect", path, f"--sbom={form}", "-o", path).returncode == 2  # which would replace it
    data = path.read_bytes()
    path.write_bytes(data.replace(b".mcc.build\0", b".mcc.guild\0"))
    done = mcc("inspect", path, f"--sbom={form}")
    assert done.returncode == 1 and "no note" in done.stderr
    path.write_bytes(data.replace(b"blake3=", b"blake3=g")[:len(data)])
    assert mcc("inspect", path, f"--sbom={form}").returncode != 0
    side = compile_to(tmp_path / "net.so", DIGITS, "--weights=sidecar")
    (tmp_path / "net.mccw").unlink()
    done = mcc("inspect", side, f"--sbom={form}")
    assert done.returncode == 3 and "net.mccw" in done.stderr


def test_the_tool_is_the_one_that_writes(artifact):
    tool = told("cyclonedx", sbom(artifact, "cyclonedx"))["tool"]
    assert tool[0] == "mcc" and tool[1] in sbom(artifact, "spdx")
