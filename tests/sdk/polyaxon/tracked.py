"""What `--track polyaxon` left at the real open-source server, read by the official Python client, unmodified, and compared with the run
directory. Used by `harness.py`, which sets POLYAXON_HOST, POLYAXON_AUTH_TOKEN and POLYAXON_EMULATOR_PROJECT.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import tempfile
import time
import uuid

from polyaxon.client import ClientConfig, PolyaxonClient, RunClient
from polyaxon.schemas import V1Run

# The log of publishing is no evidence.
LOG = "tracking.jsonl"
# Directories whose files are in the lineage together.
TOGETHER = ("inputs", "outputs", "report", "reports")


def equal(got, expected):
    assert got == expected, f"\n     got {got!r}\nexpected {expected!r}"


def client(run_uuid=None):
    owner, project = os.environ["POLYAXON_EMULATOR_PROJECT"].split("/")
    config = ClientConfig(host=os.environ["POLYAXON_HOST"], token=os.environ["POLYAXON_AUTH_TOKEN"])
    polyaxon = PolyaxonClient(config=config)
    return RunClient(owner=owner, project=project, run_uuid=run_uuid, client=polyaxon, manual_exceptions_handling=True)


def conditions(run):
    return [getattr(condition.type, "value", condition.type) for condition in run.get_statuses()[1]]


class Evidence:
    """A run directory, and where its copy has to be."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.id = self.directory.name
        self.evaluation, self.folder = f"sbx-{self.id}", f"outputs/{self.id}"
        self.manifest = self.json("manifest.json")
        self.kind = self.manifest.get("kind", "run")
        self.backends = [backend["name"] for backend in self.manifest["backends"]]

    def json(self, name):
        return json.loads((self.directory / name).read_text())

    def lines(self, name):
        return [json.loads(line) for line in (self.directory / name).read_text().splitlines()]

    def files(self):
        """Paths and sizes of all that has to be published."""
        paths = (path for path in self.directory.rglob("*") if path.is_file())
        sizes = {str(path.relative_to(self.directory)): path.stat().st_size for path in paths}
        return {path: size for path, size in sizes.items() if path != LOG}

    def digests(self):
        return {path: hashlib.sha256((self.directory / path).read_bytes()).hexdigest() for path in self.files()}

    def found(self):
        """The tracked run, as it is listed; there is one."""
        for query in (f"meta_info.evaluation:{self.evaluation}", f"name:sandbox-bench-{self.id}"):
            runs = client().list(query=query, limit=5).results
            equal(len(runs), 1)
        return runs[0]


def published(run, evidence, below=""):
    """Paths and sizes of the files that are there."""
    tree = run.get_artifacts_tree(f"{evidence.folder}/{below}".rstrip("/"))
    found = {below + name: size for name, size in (tree.files or {}).items()}
    for directory in tree.dirs or []:
        found.update(published(run, evidence, f"{below}{directory}/"))
    return found


def described(found, evidence):
    """Tags, inputs and outputs, in the list of runs."""
    manifest = evidence.manifest
    equal(sorted(found.tags), sorted(["sandbox-bench", evidence.kind, evidence.id, *evidence.backends]))
    equal(found.status, "succeeded")
    inputs = found.inputs
    equal((inputs["run"], inputs["kind"], inputs["backends"]), (evidence.id, evidence.kind, evidence.backends))
    equal((inputs["binary_version"], inputs["schema_version"]), (manifest["binary_version"], manifest["schema_version"]))
    equal(inputs["adapter_versions"], {one["name"]: one["adapter_version"] for one in manifest["backends"]})
    if evidence.kind == "fixture":
        equal((inputs["repetitions"], inputs["modes"]), (manifest["repetitions"], manifest["modes"]))
        equal(inputs["case_set"], {file["name"]: file["digest"] for file in manifest["files"]})
        equal(found.outputs["trials_succeeded"], len(evidence.lines("trials.jsonl")))
    else:
        equal((inputs["case_set"], inputs["solver"]), (manifest["datasets"], manifest["solver"]))
        equal(found.outputs["outcome"], evidence.json("summary.json")["outcome"])
    equal((found.meta_info["has_metrics"], found.meta_info["evaluation_kind"]), (True, evidence.kind))


def measured(evidence):
    """A series for each backend and condition: what it is called, and its values."""
    series = {}
    for trial in evidence.lines("trials.jsonl"):
        if evidence.kind == "fixture":
            cell, kind, us = f"{trial['backend']}_{trial['mode']}", "command", trial["times"]["command_us"]
        else:
            cell = f"{trial['trial']['backend']}_{trial['trial']['condition']}"
            kind, us = "accepted", trial["total_us"]
        series.setdefault(f"{cell}_{kind}_seconds", []).append(us / 1e6)
    return series


def metrics(run, found, evidence):
    series = measured(evidence)
    for name, expected in series.items():
        data = run.get_events(kind="metric", names=[name], orient="dict").data[0]
        data = data if isinstance(data, dict) else data.to_dict()
        equal((data["name"], data["data"]["step"], data["data"]["metric"]), (name, list(range(1, len(expected) + 1)), expected))
        equal(found.outputs[name], expected[-1])
        # By such a figure runs are found and put in order.
        assert found.uuid in [one.uuid for one in client().list(query=f"metrics.{name}:>0", sort=f"-metrics.{name}").results]
    return list(series)


def artifacts(run, evidence):
    expected = evidence.files()
    equal(published(run, evidence), expected)
    # The client draws a bar for every file.
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        for number, path in enumerate(expected):
            # Else the server gives what it once read, also if another file was sent in the meantime.
            back = run.download_artifact(f"{evidence.folder}/{path}", force=True, path_to=f"{directory}/{number}")
            assert pathlib.Path(back).read_bytes() == (evidence.directory / path).read_bytes(), path
    return len(expected)


def lineage(run, names, evidence):
    entries = {one.name: one for one in run.get_artifacts_lineage(limit=1000).results}
    for name in names:
        equal((entries[name].kind, entries[name].summary["metric"]["last"] > 0), ("metric", True))
    equal((entries["manifest-json"].is_input, entries["cases-jsonl"].is_input), (True, False))
    equal(entries["receipts-jsonl"].path, f"{evidence.folder}/receipts.jsonl")
    for path in evidence.files():
        top, *below = path.split("/")
        assert top.replace(".", "-") in entries, f"{path} is not in the lineage"
        equal(entries[top.replace(".", "-")].kind == "dir", bool(below) and top in TOGETHER)
    return len(entries)


def relationship(found, evidence):
    """From the evaluation to its sandboxes and back, by what each of them says."""
    named = {case["sandbox"]["id"] for case in evidence.lines("cases.jsonl") if case["backend"] == "polyaxon"}
    sandboxes = client().list(query=f"meta_info.correlation_run:{evidence.evaluation},live_state:0", limit=100).results
    equal({sandbox.uuid for sandbox in sandboxes}, named)
    for sandbox in sandboxes:
        back = client().list(query=f"meta_info.evaluation:{sandbox.meta_info['correlation_run']}").results
        equal([one.uuid for one in back], [found.uuid])


def imported(found):
    """A finished run can be taken into another place with its real times."""
    run = V1Run(uuid=uuid.uuid4().hex, name="imported", kind="job", status="succeeded", is_managed=False, tags=found.tags)
    run.inputs, run.created_at, run.finished_at = found.inputs, found.created_at, found.finished_at
    client().client.runs_v1.sync_run(*os.environ["POLYAXON_EMULATOR_PROJECT"].split("/"), run)
    equal([one.uuid for one in client().list(query=f"uuid:{run.uuid}").results], [run.uuid])


def everything(evidence):
    """All that was published is there, and is what it has to be. Returns what must not change when it is published again."""
    found = evidence.found()
    described(found, evidence)
    run = client(found.uuid)
    run.refresh_data()
    names = metrics(run, found, evidence)
    count = artifacts(run, evidence)
    # The server writes lineage a moment after it has answered.
    for attempt in range(20):
        try:
            entries = lineage(run, names, evidence)
            break
        except (AssertionError, KeyError):
            if attempt == 19:
                raise
            time.sleep(0.5)
    equal(conditions(run), ["created", "running", "succeeded"])
    if "polyaxon" in evidence.backends:
        relationship(found, evidence)
    print(f"the official client reads the tracked {evidence.kind}: {count} files are the same, byte for byte; "
          f"{len(names)} series, {entries} entries of lineage")
    return found.uuid, found.updated_at, entries
