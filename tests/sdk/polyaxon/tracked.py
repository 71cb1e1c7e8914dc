"""Reads what `--track polyaxon` left at the real open-source server with the official Python client, unmodified, and compares it with the
run directory.

    tracked.py RUN_DIRECTORY [--sandboxes]     --sandboxes: its sandboxes were runs of the same project

Run by `tests/sdk/polyaxon/run --real`, which sets POLYAXON_HOST, POLYAXON_AUTH_TOKEN and POLYAXON_EMULATOR_PROJECT.
"""

import json
import os
import pathlib
import sys
import tempfile
import time
import uuid

from polyaxon.client import ClientConfig, PolyaxonClient, RunClient
from polyaxon.schemas import V1Run

DIRECTORY = pathlib.Path(sys.argv[1])
OWNER, PROJECT = os.environ["POLYAXON_EMULATOR_PROJECT"].split("/")
EVALUATION = f"sbx-{DIRECTORY.name}"
FOLDER = f"outputs/{DIRECTORY.name}"


def equal(got, expected):
    assert got == expected, f"\n     got {got!r}\nexpected {expected!r}"


def client(run_uuid=None):
    config = ClientConfig(host=os.environ["POLYAXON_HOST"], token=os.environ["POLYAXON_AUTH_TOKEN"])
    polyaxon = PolyaxonClient(config=config)
    return RunClient(owner=OWNER, project=PROJECT, run_uuid=run_uuid, client=polyaxon, manual_exceptions_handling=True)


def lines(name):
    return [json.loads(line) for line in (DIRECTORY / name).read_text().splitlines()]


def local_files():
    paths = (path for path in DIRECTORY.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(DIRECTORY)) for path in paths if path.name != "tracking.jsonl")


def remote_files(run, below=""):
    tree = run.get_artifacts_tree(f"{FOLDER}/{below}".rstrip("/"))
    found = {below + name: size for name, size in (tree.files or {}).items()}
    for directory in tree.dirs or []:
        found.update(remote_files(run, f"{below}{directory}/"))
    return found


def listed():
    for query in (f"meta_info.evaluation:{EVALUATION}", f"name:sandbox-bench-{DIRECTORY.name}"):
        found = client().list(query=query, limit=5).results
        equal(len(found), 1)
    run = found[0]
    manifest = json.loads((DIRECTORY / "manifest.json").read_text())
    backends = [backend["name"] for backend in manifest["backends"]]
    equal(sorted(run.tags), sorted(["sandbox-bench", "fixture", DIRECTORY.name, *backends]))
    equal(run.status, "succeeded")
    equal((run.inputs["repetitions"], run.inputs["modes"]), (manifest["repetitions"], manifest["modes"]))
    equal((run.inputs["binary_version"], run.inputs["backends"]), (manifest["binary_version"], backends))
    equal(run.inputs["case_set"], {file["name"]: file["digest"] for file in manifest["files"]})
    equal(run.outputs["trials_succeeded"], len(lines("trials.jsonl")))
    equal((run.meta_info["has_metrics"], run.meta_info["evaluation_kind"]), (True, "fixture"))
    return run


def series(run, found):
    trials = [trial for trial in lines("trials.jsonl") if trial["mode"] == "fresh"]
    name = f"{trials[0]['backend']}_fresh_command_seconds"
    expected = [trial["times"]["command_us"] / 1e6 for trial in trials]
    data = run.get_events(kind="metric", names=[name], orient="dict").data[0]
    data = data if isinstance(data, dict) else data.to_dict()
    equal((data["name"], data["data"]["step"], data["data"]["metric"]), (name, list(range(1, len(trials) + 1)), expected))
    equal(found.outputs[name], expected[-1])
    # By such a figure runs are found and put in order.
    assert found.uuid in [one.uuid for one in client().list(query=f"metrics.{name}:>0", sort=f"-metrics.{name}").results]
    return name


def artifacts(run):
    expected = local_files()
    sizes = {path: (DIRECTORY / path).stat().st_size for path in expected}
    equal(remote_files(run), sizes)
    with tempfile.TemporaryDirectory() as directory:
        for number, path in enumerate(expected):
            back = run.download_artifact(f"{FOLDER}/{path}", path_to=f"{directory}/{number}")
            equal(pathlib.Path(back).read_bytes() == (DIRECTORY / path).read_bytes(), True)
    return len(expected)


def lineage(run, name):
    entries = {one.name: one for one in run.get_artifacts_lineage(limit=1000).results}
    equal((entries[name].kind, entries[name].summary["metric"]["last"] > 0), ("metric", True))
    equal((entries["manifest-json"].is_input, entries["cases-jsonl"].is_input), (True, False))
    equal((entries["receipts-jsonl"].path, entries["reports"].kind), (f"{FOLDER}/receipts.jsonl", "dir"))
    for path in local_files():
        assert path.split("/")[0].replace(".", "-") in entries, f"{path} is not in the lineage"


def relationship():
    """From the evaluation to its sandboxes and back, by what each of them says."""
    named = {case["sandbox"]["id"] for case in lines("cases.jsonl") if case["sandbox"]}
    archived = client().list(query=f"meta_info.correlation_run:{EVALUATION},live_state:0", limit=100).results
    equal({run.uuid for run in archived}, named)


def imported(found):
    """A finished run can be taken into another place with its real times."""
    run = V1Run(uuid=uuid.uuid4().hex, name="imported", kind="job", status="succeeded", is_managed=False, tags=found.tags)
    run.inputs, run.created_at, run.finished_at = found.inputs, found.created_at, found.finished_at
    client().client.runs_v1.sync_run(OWNER, PROJECT, run)
    equal([one.uuid for one in client().list(query=f"uuid:{run.uuid}").results], [run.uuid])


def main():
    found = listed()
    run = client(found.uuid)
    run.refresh_data()
    name = series(run, found)
    count = artifacts(run)
    # The server writes lineage a moment after it has answered.
    for attempt in range(20):
        try:
            lineage(run, name)
            break
        except (AssertionError, KeyError):
            if attempt == 19:
                raise
            time.sleep(0.5)
    kinds = [getattr(condition.type, "value", condition.type) for condition in run.get_statuses()[1]]
    equal(kinds, ["created", "running", "succeeded"])
    if "--sandboxes" in sys.argv:
        relationship()
    imported(found)
    print(f"the official client reads the tracked run: {count} files are the same, byte for byte")


main()
